package outbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Store keeps staged messages until they are published. All methods may be
// called from any goroutine.
//
// Package outboxtest has a test suite that every Store passes; what is said here
// is what it tests.
type Store interface {
	// Stage writes messages in the caller's transaction: they exist if and only
	// if it commits, and a rollback to a savepoint before the call takes them with
	// it. The messages of a transaction keep their order. The answer is parallel to
	// the messages. An InvalidError is found before anything is written. A store
	// that finds an id or idempotency key in another open transaction may wait for
	// its outcome, but not without bound: ErrBusy, and nothing is staged.
	//
	// tx is one of the store's own kind. Stage is not safe for concurrent use on
	// one transaction, as the transaction is not.
	Stage(ctx context.Context, tx pgx.Tx, messages ...Message) ([]Staged, error)

	// Claim takes up to limit messages for this store's claimant, under a lease.
	// Of each queue that it takes from it takes the first messages, in order, and
	// no other claim gets anything of that queue until all of them are settled,
	// released or lost; a queue whose first message failed and waits for its next
	// attempt gives none. Queues take turns and share limit. None means that there is nothing
	// to be had at the moment. A message staged by a transaction that committed
	// late is claimed like any other.
	//
	// Every claim is stamped with a fence that no claim had before. Every write below names
	// it, and is refused to whoever does not hold it (LeaseLostError).
	Claim(ctx context.Context, limit int) ([]Claim, error)

	// Renew makes the leases of claims last for the store's Lease from now.
	Renew(ctx context.Context, claims ...Claim) error

	// MarkPublished settles messages that were published.
	MarkPublished(ctx context.Context, claims ...Claim) error

	// Release gives messages back. No attempt is charged, and they can be claimed
	// again at once.
	Release(ctx context.Context, claims ...Claim) error

	// Fail charges an attempt. The message stays first in its queue, which waits
	// for Failure.Delay; or it is parked and its queue goes on.
	Fail(ctx context.Context, failures ...Failure) error

	// Pending counts what is not published yet.
	Pending(ctx context.Context) (Backlog, error)

	// Lease is how long a claim lasts, and Claimant the name that claims are made in.
	Lease() time.Duration
	Claimant() string
}

// Claim is a message that a claimant may publish until its lease ends.
type Claim struct {
	Message
	// Seq is the message's place in the order of all messages.
	Seq int64
	// Fence identifies the claim.
	Fence int64
	// Attempt is the number of this attempt, from 1: one more than have failed,
	// or were lost with their claimant.
	Attempt int
	// ClaimedAt is when, by the store's clock.
	ClaimedAt time.Time
	// Damage says why the message could not be read completely (ErrDamaged).
	// It can't be published, and is to be failed.
	Damage error
}

// Failure is the outcome of a claim that could not be published.
type Failure struct {
	Claim
	// Error is what operators read. Bytes that are not text are replaced, and of
	// a long one only the first 2 kB are kept.
	Error string
	// Delay is how long the message's queue waits for its next attempt. It is
	// rounded up to milliseconds.
	Delay time.Duration
	// Park takes the message out of its queue until an operator acts.
	Park bool
}

// Backlog says what is not published. A store may stop counting at a number that it
// documents.
type Backlog struct {
	// Pending messages wait in their queues or are being published.
	Pending int64 `json:"pending"`
	// OldestAge is how long the one of them that has waited longest has. 0 if
	// nothing waits.
	OldestAge time.Duration `json:"oldest_age_ns"`
	// Scheduled messages have not joined their queue yet.
	Scheduled int64 `json:"scheduled"`
	// Parked messages were given up and wait for an operator.
	Parked int64 `json:"parked"`
	// Waiting queues have a failed message at their head, and wait for its next
	// attempt.
	Waiting int64 `json:"waiting_queues"`
}
