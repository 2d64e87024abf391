package torture

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/torture/journal"
)

// drained is for how long the rest may take to be delivered once everything is well.
const drained = 60 * time.Second

// settle waits until nothing is pending any more, or for drained: what is left then is
// the checker's to judge. What holds its stream is released.
func (r *run) settle(ctx context.Context) error {
	conn, err := r.cluster.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for until := time.Now().Add(drained); ; {
		if err := r.subscriptions.enableAll(ctx); err != nil {
			return err
		}
		if err := r.release(ctx, conn); err != nil {
			return err
		}
		var left int
		if err := conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM postlane.deliveries)
			+ (SELECT count(*) FROM postlane.outbox_pending) + (SELECT count(*) FROM postlane.leases)`).Scan(&left); err != nil {
			return err
		}
		if left == 0 || time.Now().After(until) {
			r.say("%d deliveries, messages and leases are left", left)
			return nil
		}
		rest(ctx, 300*ms)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// release lets streams go on that dead letters hold.
func (r *run) release(ctx context.Context, conn *pgx.Conn) error {
	rows, _ := conn.Query(ctx, "SELECT subscription_id, seq FROM postlane.deliveries WHERE held_at IS NOT NULL LIMIT 200")
	type held struct{ Sub, Seq int64 }
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[held])
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

// record writes down what the database knows at the end, by plain SQL.
func (r *run) record(ctx context.Context) error {
	conn, err := r.cluster.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, "SELECT id FROM torture.transactions")
	var tx string
	if _, err := pgx.ForEachRow(rows, []any{&tx}, func() error {
		return r.journal.Write(journal.Line{Commit: &journal.Commit{Tx: tx}})
	}); err != nil {
		return fmt.Errorf("what committed: %w", err)
	}
	rows, _ = conn.Query(ctx, `
		SELECT s.url, d.event_id, CASE WHEN d.held_at IS NULL THEN 'pending' ELSE 'dead' END
		FROM postlane.deliveries d JOIN postlane.subscriptions s ON s.id = d.subscription_id
		UNION ALL
		SELECT s.url, d.event_id, d.state
		FROM postlane.settled d JOIN postlane.subscriptions s ON s.id = d.subscription_id`)
	var at string
	var state journal.State
	if _, err := pgx.ForEachRow(rows, []any{&at, &state.Event, &state.State}, func() error {
		u, err := url.Parse(at)
		if err != nil {
			return err
		}
		state.Path = u.Path
		return r.journal.Write(journal.Line{State: &state})
	}); err != nil {
		return fmt.Errorf("what became of deliveries: %w", err)
	}
	return nil
}
