package outbox

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalid is matched by every error about a message that cannot be
	// stored. Nothing was sent to the database: the caller's transaction is
	// unharmed.
	ErrInvalid = errors.New("outbox: invalid")

	// ErrBusy means that another open transaction is staging the same id or
	// idempotency key, and its outcome was not known in time. The caller's
	// transaction is unharmed: end it, and try again.
	ErrBusy = errors.New("outbox: another transaction is staging the same id or idempotency key")

	// ErrLeaseLost is matched by the error of a write for claims of which some
	// are no longer held: the lease ran out and was reclaimed, or the message was
	// settled before. For those nothing was changed. See LeaseLostError.
	ErrLeaseLost = errors.New("outbox: the lease is lost; another claimant may have the message")

	// ErrNoTx means that a message was enqueued without a transaction. Put one
	// into the context (WithTx), or decide to do without it and configure
	// Enqueuer.WithoutTx.
	ErrNoTx = errors.New("outbox: no transaction in the context; use WithTx, or set Enqueuer.WithoutTx to publish without one")

	// ErrPermanent is matched by the error of a publish that no attempt can
	// mend. See Permanent.
	ErrPermanent = errors.New("outbox: cannot be published")

	// ErrDamaged means that a stored message cannot be read, as after an edit by
	// hand. It is permanent.
	ErrDamaged = fmt.Errorf("%w: the stored message is damaged", ErrPermanent)

	// ErrCursor means that a list was to go on after something that is not the
	// Cursor of a listed message.
	ErrCursor = errors.New("outbox: not the cursor of a list; take one from what was listed")

	// ErrRunning means that the relay is running, or has run: a Relay runs once.
	ErrRunning = errors.New("outbox: a Relay runs once; make a new one")
)

// InvalidError says which value cannot be used, and why.
type InvalidError struct {
	// Index is the position of the message in the call.
	Index int
	// Field is the field's name in Message.
	Field string
	// Problem says what is wrong, without repeating the payload.
	Problem string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("outbox: message %d: %s %s", e.Index, e.Field, e.Problem)
}

// Is reports a match with ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// LeaseLostError names the claims of a call that were not held any more. The
// others of the call were written.
type LeaseLostError struct{ Lost []Claim }

func (e *LeaseLostError) Error() string {
	c := e.Lost[0]
	return fmt.Sprintf("%v (%d, the first: message %q of queue %q, fence %d)", ErrLeaseLost, len(e.Lost), c.ID, c.Queue, c.Fence)
}

// Is reports a match with ErrLeaseLost.
func (e *LeaseLostError) Is(target error) bool { return target == ErrLeaseLost }

// lostOf returns the claims that err says are lost.
func lostOf(err error) []Claim {
	if lost := (*LeaseLostError)(nil); errors.As(err, &lost) {
		return lost.Lost
	}
	return nil
}

// Permanent marks an error of a Publisher as one that no further attempt can
// mend. A relay that parks, parks such a message at once. nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string        { return e.err.Error() }
func (e *permanentError) Unwrap() error        { return e.err }
func (e *permanentError) Is(target error) bool { return target == ErrPermanent }
