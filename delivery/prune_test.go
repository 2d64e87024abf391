package delivery_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/pgtest/plans"
)

// setupLater is a store whose clock starts now and may be moved ahead: what the database
// wrote becomes old.
func setupLater(t *testing.T) (*bundle, *clock) {
	t.Helper()
	c := &clock{at: time.Now()}
	return setupOn(t, pgtest.New(t), delivery.StoreConfig{Now: c.now}), c
}

func (b *bundle) prune(r delivery.Retention) delivery.Pruned {
	b.t.Helper()
	p, err := b.store.Prune(b.ctx, r)
	b.is.NoErr(err)
	return p
}

// settledAs enqueues a delivery and settles it.
func (b *bundle) settledAs(v func(*delivery.Result), asset string) delivery.Enqueued {
	b.t.Helper()
	e := b.enqueue(asset)[0]
	b.settleAs(v, b.claim(1)...)
	return e
}

// Of what is old, only that goes which nobody needs.
func TestPruneKeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	b, c := setupLater(t)
	sub := b.subscribe(func(s *delivery.Settings) { s.EventTypes = []string{"thing.*"} })
	holding := b.subscribe(func(s *delivery.Settings) { s.EventTypes, s.OnDead = []string{"other.*"}, delivery.Hold })
	dead := func(r *delivery.Result) { r.Verdict, r.Gone, r.Blameless = delivery.Failed, true, true }
	good := func(r *delivery.Result) { r.Verdict = delivery.Succeeded }

	b.settledAs(good, "delivered")
	discarded := b.settledAs(dead, "discarded")
	b.is.NoErr(b.store.Discard(b.ctx, sub, delivery.ID(discarded.Seq), "a test"))
	died := b.settledAs(dead, "dead")
	b.enqueueEvents(delivery.Event{Tenant: tenant, Type: "other.thing", Asset: "held", Payload: []byte("1")})
	b.settleAs(dead, b.claim(1)...)
	b.enqueueEvents(delivery.Event{Tenant: "nobody", Type: "thing.changed", Payload: []byte("1")}) // that none gets
	flying := b.enqueue("flying", "flying")
	claimed := b.claim(1)
	b.is.Equal(len(claimed), 1)
	before := b.state()
	old := delivery.Retention{Settled: time.Hour, Dead: 100 * time.Hour, Events: time.Hour}
	b.is.Equal(b.prune(old), delivery.Pruned{})
	b.unchanged(before) // it is too young

	c.advance(10 * time.Hour)
	b.is.Equal(b.prune(delivery.Retention{}), delivery.Pruned{})
	b.unchanged(before) // it is kept for ever
	b.is.Equal(b.prune(old), delivery.Pruned{Deliveries: 2, Attempts: 2, Events: 3})
	b.is.Equal(b.counts(sub), "pending:1 delivering:1 dead:1 ")
	b.is.Equal(b.counts(holding), "dead:1 ")
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.events`), int64(4)) // dead, held, flying and behind it
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.attempts`), int64(2))

	// What was kept is of use.
	b.is.Equal(b.settle(delivery.Succeeded, claimed...), []delivery.Settled{delivery.SettledDelivered})
	b.is.Equal(b.claim(1)[0].EventID, flying[1].ID)
	b.is.NoErr(b.store.Revive(b.ctx, sub, delivery.ID(died.Seq)))
	revived := b.claim(1)
	b.is.Equal(revived[0].EventID, died.ID)
	b.settleAs(dead, revived...)

	// A dead letter is given up later, and its event and what is known of it with it.
	c.advance(101 * time.Hour)
	b.is.Equal(b.prune(old), delivery.Pruned{Deliveries: 2, Attempts: 3, Events: 2})
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.revivals`), int64(0))
	b.is.Equal(b.counts(sub), "delivering:1 ")
	b.is.Equal(b.counts(holding), "dead:1 ") // as long as it holds its stream
}

// An event is kept until the last of its deliveries is over.
func TestPruneKeepsAnEventThatAnotherSubscriptionWaitsFor(t *testing.T) {
	t.Parallel()
	b, c := setupLater(t)
	quick := b.subscribe()
	slow := b.subscribe()
	b.enqueue("a")
	for _, claim := range b.claim(2) {
		if claim.Subscription == quick {
			b.settle(delivery.Succeeded, claim)
		} else {
			b.settle(delivery.Released, claim)
		}
	}
	c.advance(2 * time.Hour)
	r := delivery.Retention{Settled: time.Hour, Events: time.Hour}
	b.is.Equal(b.prune(r), delivery.Pruned{Deliveries: 1, Attempts: 1})
	b.is.Equal(b.counts(slow), "pending:1 ")
	claims := b.claim(2)
	b.is.Equal(len(claims), 1)
	b.settle(delivery.Succeeded, claims...)
	c.advance(2 * time.Hour)
	b.is.Equal(b.prune(r), delivery.Pruned{Deliveries: 1, Attempts: 1, Events: 1})
}

func TestPruneRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, r := range []delivery.Retention{{Settled: -1}, {Dead: time.Microsecond}, {Events: -time.Hour}, {Batch: -1}} {
		_, err := b.store.Prune(b.ctx, r)
		b.is.True(errors.Is(err, delivery.ErrInvalid))
	}
}

// Secrets that do not sign any more are removed a day after their last signature.
func TestPruneSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	for range 3 {
		_, err := b.store.RotateSecret(b.ctx, sub, time.Hour)
		b.is.NoErr(err)
	}
	b.exec(`UPDATE postlane.subscription_secrets SET expires_at = now() - interval '25 hours' WHERE number = 1`)
	b.exec(`UPDATE postlane.subscription_secrets SET expires_at = now() - interval '23 hours' WHERE number = 2`)
	b.is.Equal(b.prune(delivery.Retention{}), delivery.Pruned{Secrets: 1})
	b.is.Equal(one[int64](b, `SELECT sum(number) FROM postlane.subscription_secrets`), int64(2+3+4))
}

// logOf writes what was settled so long ago: n deliveries, each with its event and its
// attempt.
func (b *bundle) logOf(sub delivery.SubscriptionID, n int, age time.Duration) {
	b.t.Helper()
	b.exec(`
		WITH rows AS MATERIALIZED (
			SELECT i, nextval('postlane.delivery_seq') AS seq, now() - $3::bigint * interval '1 millisecond' AS at FROM generate_series(1, $2::int) i
		), stored AS (
			INSERT INTO postlane.events (seq, tenant, id, type, asset, content_type, payload, created_at)
			SELECT seq, 'acme', 'old_' || seq, 'thing.changed', 'asset ' || i % 1000, 'application/json', '{"a":1}', at FROM rows
		), tried AS (
			INSERT INTO postlane.attempts (subscription_id, seq, fence, number, started_at, tenant, outcome, claimant)
			SELECT $1, seq, 1, 1, at, 'acme', 'delivered', 'test' FROM rows
		)
		INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, asset, created_at, settled_at, attempts, state)
		SELECT $1, seq, 'acme', 'old_' || seq, 'thing.changed', 'asset ' || i % 1000, r.at, r.at AS settled_at, 1, 'delivered' FROM rows r`,
		int64(sub), n, age.Milliseconds())
}

// BC-59: pruning 200,000 rows is many small transactions: it ends under a statement
// timeout, what an interrupted run did stays done, and deliveries go on beside it.
func TestBC59_PruningGoesOnInSmallSteps(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.DirectURL(t)) // a pooler takes no settings
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["statement_timeout"] = "2s"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := setupOn(t, pool, delivery.StoreConfig{})
	sub := b.subscribe()
	const rows = 200_000
	for range 20 {
		b.logOf(sub, rows/20, 48*time.Hour)
	}

	ctx, stop := context.WithCancel(b.ctx)
	r := delivery.Retention{Settled: time.Hour, Events: time.Hour}
	steps := 0
	largest := int64(0)
	r.Each = func(_ context.Context, p delivery.Pruned) error {
		// A delivery goes its whole way between any two steps.
		if steps++; steps%20 == 0 {
			b.enqueue("fresh")
			b.settle(delivery.Succeeded, b.claim(1)...)
		}
		largest = max(largest, p.Deliveries, p.Events)
		if steps == 100 {
			stop()
		}
		return nil
	}
	first, err := b.store.Prune(ctx, r)
	b.is.True(errors.Is(err, context.Canceled))
	b.is.Equal(first.Deliveries, int64(100_000))
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.settled WHERE event_id LIKE 'old%'`), rows-first.Deliveries)

	second, err := b.store.Prune(b.ctx, r)
	b.is.NoErr(err)
	b.is.Equal(second.Deliveries, rows-first.Deliveries)
	b.is.Equal(first.Attempts+second.Attempts, int64(rows))
	b.is.Equal(second.Events, int64(rows))
	b.is.Equal(largest, int64(1000))
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.settled`), int64(steps/20)) // the fresh ones
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.events`), int64(steps/20))
}

// Several that prune at once share the work and do not stand in each other's way.
func TestPruneFromManyProcesses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	b.logOf(sub, 10_000, 48*time.Hour)
	var all sync.WaitGroup
	var mu sync.Mutex
	var total delivery.Pruned
	for range 4 {
		all.Go(func() {
			p, err := b.store.Prune(b.ctx, delivery.Retention{Settled: time.Hour, Events: time.Hour, Batch: 100})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			total.Deliveries += p.Deliveries
			total.Attempts += p.Attempts
			total.Events += p.Events
		})
	}
	all.Wait()
	again := b.prune(delivery.Retention{Settled: time.Hour, Events: time.Hour})
	b.is.Equal(total.Deliveries+again.Deliveries, int64(10_000))
	b.is.Equal(total.Attempts+again.Attempts, int64(10_000))
	b.is.Equal(total.Events+again.Events, int64(10_000))
	b.is.Equal(one[int64](b, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`), int64(0))
}

// Pruning finds its rows by indexes, on tables that nothing analyzed.
func TestPlansOfPruning(t *testing.T) {
	t.Parallel()
	b, c, w := setupPlans(t)
	b.logOf(b.subscribe(), 20_000, 48*time.Hour)
	load(b, "uniform", 4000)
	c.advance(time.Since(c.now())) // now, by the database's clock
	list := w.During(func() {
		b.prune(delivery.Retention{Settled: 36 * time.Hour, Dead: 36 * time.Hour, Events: 36 * time.Hour, Batch: 500})
	})
	few := func(_ *plans.Plan, n *plans.Node) bool { // as many as there are endpoints, or as people asked for
		return n.Relation == "subscriptions" || n.Relation == "subscription_secrets" || n.Relation == "replays"
	}
	plans.Cheap(t, "pruning", 2000, few, list, "PruneNext", "PruneDeliveries", "PruneEvents", "PruneSecrets")
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.settled WHERE event_id LIKE 'old%' AND asset LIKE 'asset %' AND created_at < now() - interval '36 hours'`), int64(0))
}
