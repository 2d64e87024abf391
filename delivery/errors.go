package delivery

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrInvalid is matched by every error about a value that cannot be stored
	// or used as it is. Nothing was sent to the database: a transaction that
	// the value was meant for is unharmed.
	ErrInvalid = errors.New("delivery: invalid")

	// ErrConflict is matched by the error of an Enqueue that names an event id
	// which already stands for another event.
	ErrConflict = errors.New("delivery: the event id is taken by another event")

	// ErrBusy means that another open transaction is enqueueing the same event
	// id, and its outcome was not known in time. The caller's transaction is
	// unharmed: end it, and try again.
	ErrBusy = errors.New("delivery: another transaction is enqueueing the same event id")

	// ErrLeaseLost means that the claim is no longer held: its lease ran out and
	// was reclaimed, or it was settled or released before. Nothing was changed.
	ErrLeaseLost = errors.New("delivery: the lease is lost; another claimant may have the delivery")

	// ErrNotFound means that no such subscription, event or delivery exists, or
	// none that the caller may see.
	ErrNotFound = errors.New("delivery: not found")

	// ErrNotDead means that only a dead letter can be revived or discarded, and
	// this delivery is not one.
	ErrNotDead = errors.New("delivery: not a dead letter")

	// ErrInFlight means that the delivery is being sent at this moment; wait
	// until it is settled.
	ErrInFlight = errors.New("delivery: in flight")

	// ErrNotHeld means that the delivery does not hold its stream.
	ErrNotHeld = errors.New("delivery: the delivery does not hold its stream")

	// ErrReplayConflict means that the id of a replay stands for another range of its
	// subscription.
	ErrReplayConflict = errors.New("delivery: the replay id is taken by another range; give a new replay a new id")

	// ErrChanged means that somebody else changed the subscription, or the event type,
	// meanwhile.
	ErrChanged = errors.New("delivery: somebody else changed it meanwhile; read it again")
)

// InvalidError says which value cannot be used, and what would do.
type InvalidError struct {
	// Index is the position of the event in the call, or -1.
	Index int
	// Field is the field's name, as in Event or Settings.
	Field string
	// Problem says what is wrong and what to do, without repeating a secret or
	// a payload.
	Problem string
}

func (e *InvalidError) Error() string {
	if e.Index >= 0 {
		return fmt.Sprintf("delivery: event %d: %s %s", e.Index, e.Field, e.Problem)
	}
	return fmt.Sprintf("delivery: %s %s", e.Field, e.Problem)
}

// Is reports a match with ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// ConflictError names the event that was enqueued before with another content.
type ConflictError struct {
	Tenant, ID string
	// Differs lists what is not the same: type, asset, content type, payload.
	Differs []string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("delivery: event %q of tenant %q was enqueued before with another %s; give a new event a new id",
		e.ID, e.Tenant, join(e.Differs))
}

// Is reports a match with ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

func join(words []string) string {
	switch last := len(words) - 1; {
	case last < 0:
		return "content"
	case last == 0:
		return words[0]
	default:
		return strings.Join(words[:last], ", ") + " and " + words[last]
	}
}
