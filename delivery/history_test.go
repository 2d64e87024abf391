package delivery_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/pgtest/plans"
)

// Finished rows are in tables that no claim reads. While an old snapshot keeps the dead rows
// of the backlog and the leases from being cleaned, a claim meets each a few times, so its
// cost grows with what was settled meanwhile: here by no more than five times.
func TestBC04_AClaimOverALongHistoryAndAnOldSnapshot(t *testing.T) {
	t.Parallel()
	b, _, w := setupPlans(t)
	finished, events := 300_000, 5_000
	if testing.Short() {
		finished, events = 20_000, 1_000
	}
	sub := b.subscribe()
	b.exec(`
		WITH rows AS MATERIALIZED (SELECT i, nextval('postlane.delivery_seq') AS seq FROM generate_series(1, $2::int) i),
		stored AS (
			INSERT INTO postlane.events (seq, tenant, id, type, asset, content_type, payload)
			SELECT seq, 'acme', 'old_' || i, 'thing.changed', 'asset ' || i % 1000, 'text/plain', '' FROM rows
		), tried AS (
			INSERT INTO postlane.attempts (subscription_id, seq, fence, number, started_at, tenant, outcome, claimant)
			SELECT $1, seq, 1, 1, now(), 'acme', 'delivered', 'test' FROM rows
		)
		INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, asset, created_at, settled_at, attempts, state)
		SELECT $1, seq, 'acme', 'old_' || i, 'thing.changed', 'asset ' || i % 1000, now() - interval '1 day', now(), 1, 'delivered' FROM rows`, sub, finished)
	assets := 0
	enqueue := func(n int) {
		var names []string
		for range n {
			assets++
			names = append(names, fmt.Sprint("asset ", assets))
		}
		b.enqueue(names...)
	}

	session, err := pgx.ConnectConfig(b.ctx, pgtest.Direct(t, b.pool))
	b.is.NoErr(err)
	defer session.Close(context.Background())
	_, err = session.Exec(b.ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM postlane.deliveries LIMIT 1")
	b.is.NoErr(err)

	cost := func() float64 {
		var claims []delivery.Claim
		seen := w.During(func() {
			var err error
			claims, err = b.store.Claim(b.ctx, delivery.ClaimRequest{Claimant: "test", Max: 100, MaxInFlight: 200, Lease: time.Minute})
			b.is.NoErr(err)
		})
		b.is.Equal(len(claims), 100) // delivery never pauses
		cheap(t, "old snapshot", 2*events, seen, "DeliveryClaim")
		b.settle(delivery.Succeeded, claims...)
		return float64(plans.Touched(seen, "DeliveryClaim")) / float64(len(claims))
	}
	enqueue(200)
	start := cost()
	for i := range events / 100 {
		enqueue(100)
		if i == events/200 { // statistics of a moment when nothing is in flight
			b.exec("ANALYZE postlane.events, postlane.deliveries, postlane.leases, postlane.settled, postlane.attempts, postlane.subscriptions")
		}
		cost()
	}
	end := cost()
	t.Logf("%.1f pages a claimed delivery at the start, %.1f after %d deliveries beside an old snapshot", start, end, events)
	if end > 5*start {
		t.Errorf("%.1f pages a claimed delivery at the start, %.1f after %d deliveries beside an old snapshot", start, end, events)
	}
	_, err = session.Exec(b.ctx, "ROLLBACK")
	b.is.NoErr(err)
}
