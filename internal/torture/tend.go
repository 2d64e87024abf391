package torture

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
)

const (
	// tending is how often dead letters and disabled subscriptions are looked at.
	tending = 3 * time.Second
	// stalled is for how long nothing may become less, at the end, before the rest
	// is judged as it is: more than a safety net would take.
	stalled = 70 * time.Second
)

// tend does what an operator would, now and then, until ctx ends.
func (r *run) tend(ctx context.Context) {
	for {
		rest(ctx, tending)
		if ctx.Err() != nil {
			return
		}
		// In the middle of a fault it fails, and is tried again.
		_ = r.release(ctx)
		_ = r.revive(ctx)
	}
}

// release lets streams go on that dead letters hold.
func (r *run) release(ctx context.Context) error {
	type held struct{ Sub, Seq int64 }
	list, err := query[held](ctx, r, "SELECT subscription_id, seq FROM postlane.deliveries WHERE held_at IS NOT NULL LIMIT 200")
	if err != nil {
		return err
	}
	for _, h := range list {
		if err := r.subscriptions.store.ReleaseHeld(ctx, delivery.SubscriptionID(h.Sub), delivery.ID(h.Seq)); err != nil {
			return err
		}
	}
	return nil
}

// revive enables subscriptions that were disabled.
func (r *run) revive(ctx context.Context) error {
	type disabled struct{ Sub int64 }
	list, err := query[disabled](ctx, r, "SELECT id FROM postlane.subscriptions WHERE state = 'disabled' AND deleted_at IS NULL")
	if err != nil {
		return err
	}
	for _, d := range list {
		if s := r.subscriptions.take(delivery.SubscriptionID(d.Sub)); s != nil {
			err = r.subscriptions.enable(ctx, s)
			s.busy.Unlock()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func query[T any](ctx context.Context, r *run, sql string) ([]T, error) {
	rows, _ := r.pool.Query(ctx, sql)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}

// take locks a subscription; nil if something is at work on it, or it is not known.
func (o *subscriptions) take(id delivery.SubscriptionID) *subscription {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.all, func(s *subscription) bool { return s.id == id })
	if i < 0 || !o.all[i].busy.TryLock() {
		return nil
	}
	return o.all[i]
}

// settle waits until nothing is pending any more, or nothing becomes less: what is left
// then is the checker's to judge.
func (r *run) settle(ctx context.Context) error {
	if err := r.subscriptions.enableAll(ctx); err != nil {
		return err
	}
	least, since := int64(-1), time.Now()
	for {
		type count struct{ N int64 }
		left, err := query[count](ctx, r, `SELECT (SELECT count(*) FROM postlane.deliveries)
			+ (SELECT count(*) FROM postlane.outbox_pending) + (SELECT count(*) FROM postlane.leases)`)
		if err != nil {
			return fmt.Errorf("count what is left: %w", err)
		}
		n := left[0].N
		if least < 0 {
			r.say("%d deliveries, messages and leases are left", n)
		}
		if least < 0 || n < least {
			least, since = n, time.Now()
		}
		if n == 0 || time.Since(since) > stalled {
			r.say("%d are left", n)
			return nil
		}
		if err := r.release(ctx); err != nil {
			return err
		}
		if err := r.revive(ctx); err != nil {
			return err
		}
		rest(ctx, 300*ms)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
