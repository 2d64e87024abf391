package delivery_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest/plans"
)

// Plans of the store's statements over backlogs of several shapes that were never
// analyzed.

// setupPlans is a store whose plans are seen, on tables that nothing analyzes.
func setupPlans(t *testing.T) (*bundle, *clock, *plans.Log) {
	t.Helper()
	pool, w := plans.New(t)
	c := &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	b := setupOn(t, pool, delivery.StoreConfig{Now: c.now})
	for _, table := range []string{"events", "deliveries", "leases", "settled", "attempts", "subscriptions", "subscription_patterns", "paces", "breakers"} {
		b.exec(fmt.Sprintf("ALTER TABLE postlane.%s SET (autovacuum_enabled = off)", table))
	}
	return b, c, w
}

// shapes are backlogs: the asset of the i-th of n deliveries of one of 20 subscriptions,
// as SQL.
var shapes = map[string]string{
	"uniform":  `'asset ' || i`,                                         // every stream has one
	"deep":     `'asset ' || i % (n / 10)`,                              // streams ten deep
	"hot":      `CASE WHEN i < n / 2 THEN 'hot' ELSE 'asset ' || i END`, // half in one stream each, before the others
	"no asset": `CASE WHEN i < n / 2 THEN NULL ELSE 'asset ' || i END`,
	"paused":   `'asset ' || i % (n / 4)`, // of subscriptions that are paused, nine in ten
}

const planSubscriptions = 20

// load writes a backlog of n deliveries, each ready as an enqueue of its own leaves it,
// and a history as large.
func load(b *bundle, shape string, n int) (subs []delivery.SubscriptionID) {
	b.t.Helper()
	for i := range planSubscriptions {
		// One that a dispatcher has pushed aside wants nothing else.
		sub := b.subscribe(func(s *delivery.Settings) { s.EventTypes, s.MaxAttempts = []string{fmt.Sprint("type", i)}, 2 })
		subs = append(subs, sub)
	}
	if shape == "paused" {
		b.exec("UPDATE postlane.subscriptions SET state = 'paused' WHERE id <> ALL ($1::bigint[])", subs[:planSubscriptions/10])
	}
	b.exec(`
		WITH rows AS MATERIALIZED (
			SELECT ($1::bigint[])[1 + i % cardinality($1::bigint[])] AS sub, i, nextval('postlane.delivery_seq') AS seq FROM generate_series(0, $2::int - 1) i
		), tried AS (
			INSERT INTO postlane.attempts (subscription_id, seq, fence, number, started_at, tenant, outcome, claimant)
			SELECT sub, seq, 1, 1, now(), 'acme', 'delivered', 'test' FROM rows
		)
		INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, asset, created_at, settled_at, attempts, state)
		SELECT sub, seq, 'acme', 'old_' || i, 'thing.changed', 'asset ' || i % 1000, now() - interval '1 day', now(), 1,
		       CASE WHEN i % 500 = 0 THEN 'dead' ELSE 'delivered' END
		FROM rows`, subs, n)
	b.exec(fmt.Sprintf(`
		WITH rows AS MATERIALIZED (
			SELECT ($1::bigint[])[1 + i %% cardinality($1::bigint[])] AS sub, i AS k, i / cardinality($1::bigint[]) AS i,
			       $2::int / cardinality($1::bigint[]) AS n, nextval('postlane.delivery_seq') AS seq
			FROM generate_series(0, $2::int - 1) i
		), named AS MATERIALIZED (SELECT r.sub, r.seq, 'evt_' || r.seq AS id, %s AS asset FROM rows r),
		stored AS (
			INSERT INTO postlane.events (seq, tenant, id, type, asset, content_type, payload)
			SELECT seq, 'acme', id, 'thing.changed', asset, 'application/json', '{"a":1}' FROM named
		)
		INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, ready)
		SELECT sub, seq, 'acme', id, 'thing.changed', asset, seq FROM named`, shapes[shape]), subs, n)
	return subs
}

// passes are those of a dispatcher.
type passes struct {
	b     *bundle
	after delivery.SubscriptionID
}

// claim claims n, as a dispatcher does that parks what is in the way.
func (p *passes) claim(n int) []delivery.Claim {
	p.b.t.Helper()
	for {
		claims, err := p.b.store.Claim(p.b.ctx, delivery.ClaimRequest{Claimant: "test", Max: n, Ahead: 10, MaxInFlight: 25, Lease: time.Minute, After: p.after})
		p.b.is.NoErr(err)
		if len(claims) == n {
			p.after = claims[n-1].Subscription
			return claims
		}
		p.b.settle(delivery.Released, claims...)
		parked, err := p.b.store.Park(p.b.ctx, 25)
		p.b.is.NoErr(err)
		if parked == 0 {
			p.b.t.Fatalf("%d claims, not %d, and nothing more to park", len(claims), n)
		}
	}
}

// grows are the tables that a busy or an old system has many rows in.
var grows = []string{"events", "deliveries", "settled", "attempts", "paces", "breakers"}

// cheap fails the test where a plan reads one of these whole, or the leases unless it
// looks for those that ran out, or meets more than most rows.
func cheap(t *testing.T, what string, most int, list []plans.Plan, names ...string) {
	t.Helper()
	plans.Cheap(t, what, most, func(p *plans.Plan, n *plans.Node) bool {
		return !slices.Contains(grows, n.Relation) && (n.Relation != "leases" || p.Name() == "LeaseReclaim")
	}, list, names...)
}

func TestPlans(t *testing.T) {
	t.Parallel()
	n := 50_000
	if testing.Short() {
		n = 10_000
	}
	for shape := range shapes {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			b, c, w := setupPlans(t)
			subs := load(b, shape, n)
			checkPlans(t, b, c, w, shape, subs)
			b.exec("ANALYZE postlane.events, postlane.deliveries, postlane.leases, postlane.settled, postlane.attempts, postlane.subscriptions")
			b.pool.Reset()
			checkPlans(t, b, c, w, shape+", analyzed", subs)
		})
	}
}

// checkPlans leads through the life of deliveries and looks at each statement's plan.
func checkPlans(t *testing.T, b *bundle, c *clock, w *plans.Log, what string, subs []delivery.SubscriptionID) {
	t.Helper()
	// Of so many rows a claim of 50 may come across: its window is 89 rows of each
	// subscription.
	const claim = planSubscriptions * 90
	// But where nothing is behind another it reads what it takes.
	most := 2 * claim
	if strings.HasPrefix(what, "uniform") {
		most = 75
	}
	// Park's window is 2,000 rows of a subscription that had less to claim than it may.
	const park = 2*planSubscriptions*2001 + 1
	const batch = 2000
	p := &passes{b: b}

	var claims []delivery.Claim
	seen := w.During(func() { claims = p.claim(50) })
	cheap(t, what, park, seen, "DeliveryClaim")
	for i := range seen {
		if seen[i].Name() == "DeliveryClaim" {
			cheap(t, what, most, seen[i:i+1])
		}
	}

	b.settle(delivery.Released, claims...)

	// As if it had run for a while.
	for range 5 {
		b.settle(delivery.Succeeded, p.claim(50)...)
	}
	seen = w.During(func() { claims = p.claim(50) })
	cheap(t, what, most, seen[len(seen)-1:], "DeliveryClaim")

	seen = w.During(func() {
		_, err := b.store.Ahead(b.ctx, claims, 10)
		b.is.NoErr(err)
	})
	cheap(t, what, batch, seen, "DeliveryAhead")
	for i := range seen {
		for _, n := range seen[i].Root.All() {
			if n.Type == "Memoize" {
				t.Errorf("%s: %s keeps what is asked for once: %v", what, seen[i].Name(), n)
			}
		}
	}

	seen = w.During(func() {
		_, err := b.store.Renew(b.ctx, []*delivery.Claim{&claims[0], &claims[1]}, time.Minute)
		b.is.NoErr(err)
		b.settle(delivery.Succeeded, claims[:10]...)
		b.settleAs(func(r *delivery.Result) { r.Verdict, r.Delay = delivery.Failed, time.Minute }, claims[10:20]...)
		b.settle(delivery.Postponed, claims[20:30]...)
		b.settle(delivery.Released, claims[30:35]...)
		var mixed []delivery.Result
		for i := range claims[35:40] {
			mixed = append(mixed, delivery.Result{Claim: &claims[35+i], Verdict: delivery.Verdict(1 + i%2)})
		}
		_, err = b.store.Settle(b.ctx, mixed)
		b.is.NoErr(err)
	})
	cheap(t, what, batch, seen, "LeaseRenew", "DeliverySettleDelivered", "DeliverySettleFailed", "DeliveryPostpone", "LeaseDrop", "StreamWake", "SubscriptionLockSettling")

	seen = w.During(func() {
		c.advance(time.Hour)
		_, _, err := b.store.Ripen(b.ctx, 5)
		b.is.NoErr(err)
		_, err = b.store.Reclaim(b.ctx, 1000)
		b.is.NoErr(err)
		_, err = b.store.OldestDue(b.ctx)
		b.is.NoErr(err)
		_, err = b.store.ActiveSubscriptions(b.ctx)
		b.is.NoErr(err)
		_, err = b.store.DiscardDeleted(b.ctx, 100)
		b.is.NoErr(err)
	})
	cheap(t, what, batch, seen, "DeliveryRipen", "LeaseReclaim", "StreamOldestDue", "SubscriptionActiveCount", "DeliveryDiscardDeleted")

	// Nothing to do is asked all the time.
	seen = w.During(func() {
		_, err := b.store.Reclaim(b.ctx, 1000)
		b.is.NoErr(err)
		_, _, err = b.store.Ripen(b.ctx, 1000)
		b.is.NoErr(err)
	})
	cheap(t, what, batch, seen, "DeliveryRipen", "LeaseReclaim")

	e := event("a new one")
	e.Type = "type3"
	seen = w.During(func() {
		b.enqueueEvents(e)
		e.ID = fmt.Sprint("evt_once", time.Now().UnixNano())
		b.enqueueEvents(e, e)
		b.enqueueEvents(e)
		other := e
		other.ID = ""
		b.enqueueEvents(other)
		b.enqueueEvents(other, other)
		e.Payload = nil
		tx := b.begin()
		_, err := delivery.Enqueue(b.ctx, tx, other, e)
		b.is.True(err != nil)
		b.is.NoErr(tx.Commit(b.ctx))
	})
	cheap(t, what, batch, seen, "EventEnqueue", "EventEnqueueOne", "EventEnqueueNew", "EventGetMany", "EventUndo")

	seen = w.During(func() {
		for _, sub := range []delivery.SubscriptionID{subs[0], subs[len(subs)-1]} {
			asset := "asset 7"
			for _, f := range []delivery.Filter{
				{}, {OfAsset: true}, {OfAsset: true, Asset: asset},
				{States: []delivery.DeliveryState{delivery.Dead}}, {States: []delivery.DeliveryState{delivery.Delivered}},
				{States: []delivery.DeliveryState{delivery.Pending}},
			} {
				for _, list := range []func(context.Context, delivery.SubscriptionID, delivery.Filter, delivery.ID, int) (delivery.Page, error){
					b.store.Deliveries, b.store.DeliveriesOldest,
				} {
					page, err := list(b.ctx, sub, f, 0, 50)
					b.is.NoErr(err)
					if list := page.Deliveries; len(list) > 0 {
						_, err = b.store.Delivery(b.ctx, sub, list[0].ID)
						b.is.NoErr(err)
						_, err = b.store.Attempts(b.ctx, sub, list[0].ID)
						b.is.NoErr(err)
					}
				}
			}
		}
	})
	cheap(t, what, batch, seen, "LogList", "LogListOldest", "LogAttempts")

	seen = w.During(func() {
		for _, after := range []*string{nil, new(string)} {
			streams, err := b.store.Streams(b.ctx, subs[0], after, 20)
			b.is.NoErr(err)
			b.is.True(len(streams) > 0)
			_, err = b.store.Streams(b.ctx, subs[0], &streams[len(streams)-1].Asset, 20)
			b.is.NoErr(err)
		}
	})
	cheap(t, what, 21*1001, seen, "StreamList") // the depth is counted up to 1,000

	seen = w.During(func() {
		page, err := b.store.Deliveries(b.ctx, subs[0], delivery.Filter{States: []delivery.DeliveryState{delivery.Pending}}, 0, 1)
		b.is.NoErr(err)
		b.is.NoErr(b.store.Discard(b.ctx, subs[0], page.Deliveries[0].ID, "x"))
	})
	cheap(t, what, batch, seen, "DeliveryLock", "DeliveryInFlight", "DeliveryRemove", "StreamWake")
}

// awaitRemovable waits until everything that was deleted so far may be removed from the
// indexes: what was written since the oldest transaction of the server that is open stays
// in them, dead, and those of other tests may be long.
func awaitRemovable(b *bundle) {
	b.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	last := one[uint64](b, "SELECT pg_current_xact_id()::text::bigint")
	for one[uint64](b, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint") <= last {
		<-tick.C
	}
}

// What a claimed delivery costs does not grow with the backlog behind it.
func TestTheOldestDueProbesPaces(t *testing.T) {
	t.Parallel()
	b, _, w := setupPlans(t)
	load(b, "uniform", 2000)
	b.exec("UPDATE postlane.subscriptions SET rate_limit = 10, rate_per_s = 1")
	b.exec("INSERT INTO postlane.paces (subscription_id, interval_us, next_at) SELECT id, 100000, now() FROM postlane.subscriptions")
	b.exec("INSERT INTO postlane.paces (subscription_id, interval_us, next_at) SELECT -n, 100000, now() FROM generate_series(1, 20000) n")
	for _, what := range []string{"limited", "limited, analyzed"} {
		seen := w.During(func() {
			_, err := b.store.OldestDue(b.ctx)
			b.is.NoErr(err)
		})
		cheap(t, what, 3*planSubscriptions, seen, "StreamOldestDue")
		b.exec("ANALYZE postlane.paces, postlane.deliveries, postlane.subscriptions")
		b.pool.Reset()
	}
}

func TestAClaimCostsTheSameAtFiftyTimesTheBacklog(t *testing.T) {
	t.Parallel()
	for shape := range shapes {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			loaded := func(n int) (perRow func() float64) {
				b, _, w := setupPlans(t)
				load(b, shape, n)
				p := &passes{b: b}
				for parked := int64(1); parked > 0; { // what a claim that found too little leads to
					var err error
					parked, err = b.store.Park(b.ctx, 25)
					b.is.NoErr(err)
				}
				b.settle(delivery.Succeeded, p.claim(10)...)
				return func() float64 {
					awaitRemovable(b)
					pages, rows := 0, 0
					for range 10 {
						var claims []delivery.Claim
						seen := w.During(func() { claims = p.claim(4) })
						pages += plans.Touched(seen, "DeliveryClaim")
						rows += len(claims)
						b.settle(delivery.Succeeded, claims...)
					}
					return float64(pages) / float64(rows)
				}
			}
			ofSmall, ofLarge := loaded(1000), loaded(50_000)
			small, large := min(ofSmall(), ofSmall()), math.Inf(1)
			for try := 0; try < 10 && large > 2*small; try++ { // a long transaction may begin in the middle
				large = min(large, ofLarge())
			}
			t.Logf("%.1f pages a claimed delivery at 1,000, %.1f at 50,000", small, large)
			if large > 2*small {
				t.Errorf("%.1f pages a claimed delivery at a backlog of 1,000, %.1f at 50,000", small, large)
			}
		})
	}
}

// Park is what a dispatcher does whenever a claim finds less than it may send, which with
// every slot taken, or a backlog that is paused, is all the time. It looks where a claim
// was short of what it could have had, and not at what merely waits.
func TestParkingLooksOnlyWhereAClaimWasShort(t *testing.T) {
	t.Parallel()
	for _, shape := range []string{"uniform", "paused"} {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			b, _, w := setupPlans(t)
			load(b, shape, 20_000)
			claims, err := b.store.Claim(b.ctx, delivery.ClaimRequest{Claimant: "test", Max: 10_000, MaxInFlight: 25, Lease: time.Minute})
			b.is.NoErr(err)
			b.is.Equal(len(claims)%25, 0) // every slot is taken
			seen := w.During(func() {
				parked, err := b.store.Park(b.ctx, 25)
				b.is.NoErr(err)
				b.is.Equal(parked, int64(0))
			})
			if pages := plans.Touched(seen, "DeliveryPark"); pages > 40*planSubscriptions {
				t.Errorf("%d pages to park nothing of %d subscriptions", pages, planSubscriptions)
			}
		})
	}
}
