package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/traceparent"
)

type txKey struct{}

// WithTx returns a context that carries a transaction, for Enqueuer.Enqueue.
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// TxFrom returns the transaction that ctx carries, if it does.
func TxFrom(ctx context.Context) (tx pgx.Tx, ok bool) {
	tx, ok = ctx.Value(txKey{}).(pgx.Tx)
	return tx, ok && tx != nil
}

// Enqueuer is for code that is called with a transaction at hand or without, and
// should not have to know. Code that has the transaction calls Store.Stage.
//
// Its methods may be called from any goroutine, as far as the transactions may.
type Enqueuer struct {
	// Stage is how messages are staged. Default: the package's Stage.
	Stage func(ctx context.Context, tx pgx.Tx, messages ...Message) ([]Staged, error)

	// WithoutTx publishes what is enqueued without a transaction at hand, at once
	// and directly. Nothing is promised for it then: not that the caller's change
	// is ever made, not the order among messages that are staged, and no second
	// attempt.
	// Default: nil, which refuses it with ErrNoTx.
	WithoutTx Publisher
}

// Enqueue stages messages in the transaction that ctx carries (WithTx). Without
// one it fails with ErrNoTx, or publishes directly where WithoutTx says so.
// RunAt cannot be kept without a transaction, and is refused (ErrInvalid).
func (e *Enqueuer) Enqueue(ctx context.Context, messages ...Message) ([]Staged, error) {
	if tx, ok := TxFrom(ctx); ok {
		if e.Stage != nil {
			return e.Stage(ctx, tx, messages...)
		}
		return Stage(ctx, tx, messages...)
	}
	if e.WithoutTx == nil {
		return nil, ErrNoTx
	}
	parent := traceparent.Of(ctx)
	staged := make([]Staged, len(messages))
	normal := make([]Message, len(messages))
	for i, m := range messages {
		if !m.RunAt.IsZero() {
			return nil, &InvalidError{Index: i, Field: "RunAt", Problem: "needs a transaction: without one a message is published at once"}
		}
		var err error
		if normal[i], err = m.normalize(i, parent); err != nil {
			return nil, err
		}
		staged[i].ID = normal[i].ID
	}
	for i, m := range normal {
		if err := e.WithoutTx.Publish(ctx, m); err != nil {
			return staged[:i], fmt.Errorf("outbox: publish without a transaction: %w", err)
		}
	}
	return staged, nil
}
