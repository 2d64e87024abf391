package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// Retention says for how long what is over is kept. The zero value keeps everything for
// ever.
//
// Never removed are a delivery that is pending, in flight or holding its stream, and the
// event of one, or of a dead letter that can still be revived.
type Retention struct {
	// Settled is for how long the log keeps what was delivered or discarded, with its
	// attempts, from then on. Default: 0, for ever.
	Settled time.Duration

	// Dead is for how long a dead letter can be looked at and revived, from its death
	// on. Default: 0, for ever.
	Dead time.Duration

	// Events is for how long an event is kept with its payload, from when it was
	// written on: until then its id finds out that it was enqueued before.
	// Default: 0, for ever.
	Events time.Duration

	// Batch is the most rows that one transaction looks at. Default: 1000.
	Batch int

	// Each, if it is set, is told after each transaction what that removed. Pruning goes
	// on when it returns, so it may wait, and ends with its error if it returns one.
	Each func(context.Context, Pruned) error
}

// Pruned counts rows that were removed.
type Pruned struct {
	Deliveries int64 `json:"deliveries"`
	Attempts   int64 `json:"attempts"`
	Events     int64 `json:"events"`
	// Secrets are signing secrets whose overlap ended a day ago or earlier.
	Secrets int64 `json:"secrets"`
}

func (p *Pruned) add(o Pruned) {
	p.Deliveries += o.Deliveries
	p.Attempts += o.Attempts
	p.Events += o.Events
	p.Secrets += o.Secrets
}

// pruneTimeout bounds one batch.
const pruneTimeout = 30 * time.Second

// Prune removes what a Retention does not keep, oldest first, and signing secrets that
// signed for the last time a day ago. It works in small transactions, so deliveries go
// on beside it, and what it has done when it is interrupted stays done; the numbers are
// right also with an error. Any number of processes may prune at once.
func (s *Store) Prune(ctx context.Context, r Retention) (Pruned, error) {
	r.Batch = cmp.Or(r.Batch, 1000)
	for name, d := range map[string]time.Duration{"Settled": r.Settled, "Dead": r.Dead, "Events": r.Events} {
		if d < 0 || (d > 0 && d < time.Millisecond) {
			return Pruned{}, &InvalidError{Index: -1, Field: name, Problem: fmt.Sprintf("is %v; use 1ms or more, or 0 for ever", d)}
		}
	}
	if r.Batch < 1 || r.Batch > 100_000 {
		return Pruned{}, &InvalidError{Index: -1, Field: "Batch", Problem: fmt.Sprintf("is %d; use 1 to 100,000", r.Batch)}
	}
	p := pruning{store: s, Retention: r}
	for _, part := range []func(context.Context) error{p.deliveries, p.events, p.replays, p.secrets} {
		if err := part(ctx); err != nil {
			return p.total, fmt.Errorf("delivery: prune: %w", err)
		}
	}
	return p.total, nil
}

// pruning is one pass.
type pruning struct {
	Retention
	store *Store
	total Pruned
}

// batch runs one statement in a transaction of its own, whose plan stays on the indexes,
// and tells what it removed.
func (p *pruning) batch(ctx context.Context, f func(context.Context, pgx.Tx) (Pruned, error)) error {
	bounded, cancel := context.WithTimeout(ctx, pruneTimeout)
	defer cancel()
	var did Pruned
	err := p.store.transaction(bounded, func(tx pgx.Tx) (err error) {
		if err = queries.PlanSettings(bounded, tx); err == nil {
			did, err = f(bounded, tx)
		}
		return err
	})
	if err != nil {
		return err
	}
	p.total.add(did)
	if p.Each == nil {
		return ctx.Err()
	}
	return cmp.Or(p.Each(ctx, did), ctx.Err())
}

// deliveries prunes the logs, one subscription after the other. Those of deleted ones are
// among them.
func (p *pruning) deliveries(ctx context.Context) error {
	youngest := min(cmp.Or(p.Settled, p.Dead), cmp.Or(p.Dead, p.Settled))
	if youngest == 0 {
		return nil
	}
	for sub := int64(0); ; {
		next, err := queries.PruneNext(ctx, p.store.pool, &dbgen.PruneNextParams{After: sub, Now: p.store.now(), YoungestMs: youngest.Milliseconds()})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		sub = next.SubscriptionID
		for more, after := next.Old, int64(0); more; {
			err := p.batch(ctx, func(ctx context.Context, tx pgx.Tx) (Pruned, error) {
				r, err := queries.PruneDeliveries(ctx, tx, &dbgen.PruneDeliveriesParams{
					Now: p.store.now(), SubscriptionID: sub, SettledMs: p.Settled.Milliseconds(), DeadMs: p.Dead.Milliseconds(), After: after, Max: int32(p.Batch),
				})
				if err != nil {
					return Pruned{}, err
				}
				after, more = r.Last, r.Old > 0 && r.Met == int64(p.Batch)
				return Pruned{Deliveries: r.Deliveries, Attempts: r.Attempts}, nil
			})
			if err != nil {
				return err
			}
		}
	}
}

// events prunes events, after the dead letters that needed them. A batch without an old
// one ends the pass: what comes after it was written later.
func (p *pruning) events(ctx context.Context) error {
	for more, after := p.Events > 0, int64(0); more; {
		err := p.batch(ctx, func(ctx context.Context, tx pgx.Tx) (Pruned, error) {
			if err := queries.ReplayEventsGoing(ctx, tx); err != nil {
				return Pruned{}, err
			}
			r, err := queries.PruneEvents(ctx, tx, &dbgen.PruneEventsParams{
				Now: p.store.now(), KeepMs: p.Events.Milliseconds(), After: after, Max: int32(p.Batch),
			})
			if err != nil {
				return Pruned{}, err
			}
			after, more = r.Last, r.Old > 0 && r.Met == int64(p.Batch)
			return Pruned{Events: r.Events}, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// replays forgets replays of events that are not kept any more.
func (p *pruning) replays(ctx context.Context) error {
	for more := p.Events > 0; more; {
		err := p.batch(ctx, func(ctx context.Context, tx pgx.Tx) (Pruned, error) {
			n, err := queries.ReplayPrune(ctx, tx, &dbgen.ReplayPruneParams{Now: p.store.now(), KeepMs: p.Events.Milliseconds(), Max: int32(p.Batch)})
			more = n == int64(p.Batch)
			return Pruned{}, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *pruning) secrets(ctx context.Context) error {
	for more := true; more; {
		err := p.batch(ctx, func(ctx context.Context, tx pgx.Tx) (Pruned, error) {
			n, err := queries.PruneSecrets(ctx, tx, int32(p.Batch))
			more = n == int64(p.Batch)
			return Pruned{Secrets: n}, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
