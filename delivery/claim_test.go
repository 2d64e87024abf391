package delivery_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
)

// streamOf names the stream of a claim.
type streamOf struct {
	subscription delivery.SubscriptionID
	asset        string
}

// ledger knows what claimants hold, and what came before it.
type ledger struct {
	mu      sync.Mutex
	open    map[streamOf]int64
	last    map[streamOf]int64
	claimed map[[2]int64]bool
	settled int
}

// take notes claims, and says what is wrong with them.
func (l *ledger) take(claims []delivery.Claim) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range claims {
		s := streamOf{c.Subscription, c.Asset}
		id := [2]int64{int64(c.Subscription), c.Seq}
		switch {
		case l.open[s] != 0:
			return fmt.Errorf("%v of %v was claimed while %d was in flight", c.Seq, s, l.open[s])
		case c.Seq <= l.last[s]:
			return fmt.Errorf("%v of %v was claimed after %d", c.Seq, s, l.last[s])
		case l.claimed[id]:
			return fmt.Errorf("%v of %v was claimed twice", c.Seq, s)
		}
		l.open[s], l.last[s], l.claimed[id] = c.Seq, c.Seq, true
	}
	return nil
}

// give notes that claims are about to be settled; another claimant may have the
// streams before the settling returns.
func (l *ledger) give(claims []delivery.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range claims {
		delete(l.open, streamOf{c.Subscription, c.Asset})
	}
	l.settled += len(claims)
}

func (l *ledger) done() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settled
}

// work claims and settles until so many deliveries are settled in all.
func (l *ledger) work(ctx context.Context, store *delivery.Store, total int) error {
	for l.done() < total {
		const most = 7
		claims, err := store.Claim(ctx, delivery.ClaimRequest{Claimant: "test", Max: most, MaxInFlight: 20, Lease: time.Minute})
		if err != nil {
			return err
		}
		if len(claims) > most {
			return fmt.Errorf("%d claims, more than %d", len(claims), most)
		}
		if err := l.take(claims); err != nil {
			return err
		}
		if len(claims) == 0 {
			if _, err := store.Park(ctx, 20); err != nil {
				return err
			}
			continue
		}
		results := make([]delivery.Result, len(claims))
		for i := range claims {
			results[i] = delivery.Result{Claim: &claims[i], Verdict: delivery.Succeeded}
		}
		l.give(claims)
		settlements, err := store.Settle(ctx, results)
		if err != nil {
			return err
		}
		for i, s := range settlements {
			if s.State != delivery.SettledDelivered {
				return fmt.Errorf("%d is %s", claims[i].Seq, s.State)
			}
		}
	}
	return nil
}

func newLedger() *ledger {
	return &ledger{open: map[streamOf]int64{}, last: map[streamOf]int64{}, claimed: map[[2]int64]bool{}}
}

// together runs f in n goroutines and returns the first error.
func together(n int, f func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	var first error
	for range n {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

func TestManyClaimantsOfOneBacklog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	subs := []delivery.SubscriptionID{b.subscribe(), b.subscribe(), b.subscribe()}
	const streams, depth = 30, 6
	for range depth {
		var names []string
		for i := range streams - 1 {
			names = append(names, fmt.Sprintf("asset %d", i))
		}
		b.enqueue(append(names, "")...)
	}
	const total = 3 * streams * depth
	l := newLedger()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	b.is.NoErr(together(8, func(int) error { return l.work(ctx, b.store, total) }))
	for _, sub := range subs {
		b.is.Equal(b.counts(sub), fmt.Sprintf("delivered:%d ", streams*depth))
	}
	woken, err := b.store.WakeOrphans(b.ctx)
	b.is.NoErr(err)
	b.is.Equal(woken, int64(0))
}

// The claims meet row by row: every claimant asks for the one delivery there is.
func TestClaimantsOfOneDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	for round := range 20 {
		b.enqueue("a", "a")
		var mu sync.Mutex
		var got []delivery.Claim
		b.is.NoErr(together(6, func(int) error {
			claims, err := b.store.Claim(b.ctx, request(5))
			mu.Lock()
			defer mu.Unlock()
			got = append(got, claims...)
			return err
		}))
		if len(got) != 1 {
			t.Fatalf("round %d: %d claims", round, len(got))
		}
		b.is.Equal(b.settle(delivery.Succeeded, got...), []delivery.Settled{"delivered"})
		b.is.Equal(b.settle(delivery.Succeeded, b.claim(5)...), []delivery.Settled{"delivered"})
	}
}

func TestEventsWithoutAnAssetAreOneStream(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	other := b.subscribe()
	var seqs []int64
	for range 3 { // of transactions of their own: all are ready, none was parked by the enqueue
		seqs = append(seqs, b.enqueue("")[0].Seq)
	}
	b.enqueue("a")
	for i := range 3 {
		claims := b.claim(10)
		for _, s := range []delivery.SubscriptionID{sub, other} {
			n := slices.IndexFunc(claims, func(c delivery.Claim) bool { return c.Subscription == s && c.Asset == "" })
			b.is.True(n >= 0)
			b.is.Equal(claims[n].Seq, seqs[i])
			if i > 0 {
				b.is.Equal(claims[n].Prev, seqs[i-1])
			} else {
				b.is.Equal(claims[n].Prev, int64(0))
			}
		}
		b.is.Equal(len(claims), map[bool]int{true: 4, false: 2}[i == 0]) // once more the two of asset a
		b.is.Equal(len(b.claim(10)), 0)
		b.settle(delivery.Succeeded, claims...)
	}
	b.is.Equal(b.counts(0), "delivered:8 ")
}

// An asset that looks like the mark of "no asset" in some encoding is an asset.
func TestOddAssetsAreTheirOwnStreams(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	odd := []string{"", " ", "NULL", "\\N", "''", "{}", "a,b", `"`, "\u00e9", "e\u0301", "日本", "\u200b", "\t\n"}
	b.enqueue(odd...)
	got := assets(b.claim(100))
	slices.Sort(got)
	slices.Sort(odd)
	b.is.Equal(got, odd)
}

func TestAClaimIsNeverMoreThanAsked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	capped := b.subscribe(func(s *delivery.Settings) { s.MaxInFlight = 3 })
	free := b.subscribe()
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprint(i))
	}
	b.enqueue(names...)
	b.is.Equal(len(b.claim(1)), 1)
	b.is.Equal(len(b.claim(4)), 4)

	all := func(most int) map[delivery.SubscriptionID]int {
		_, err := b.store.Claim(b.ctx, delivery.ClaimRequest{Claimant: "test", Max: 1000, MaxInFlight: most, Lease: time.Minute})
		b.is.NoErr(err)
		held := map[delivery.SubscriptionID]int{}
		rows, err := b.pool.Query(b.ctx, "SELECT subscription_id, count(*) FROM postlane.leases GROUP BY 1")
		b.is.NoErr(err)
		var id delivery.SubscriptionID
		var n int
		_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error { held[id] = n; return nil })
		b.is.NoErr(err)
		return held
	}
	b.is.Equal(all(10), map[delivery.SubscriptionID]int{capped: 3, free: 10})
	b.is.Equal(all(2), map[delivery.SubscriptionID]int{capped: 3, free: 10}) // less than are in flight
	b.is.Equal(all(25), map[delivery.SubscriptionID]int{capped: 3, free: 25})

	_, err := b.store.UpdateSubscription(b.ctx, capped, func(s *delivery.Settings) error { s.MaxInFlight = 0; return nil })
	b.is.NoErr(err)
	b.is.Equal(all(25), map[delivery.SubscriptionID]int{capped: 25, free: 25})
}

func TestClaimRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, edit := range map[string]func(*delivery.ClaimRequest){
		"no claimant": func(r *delivery.ClaimRequest) { r.Claimant = "" },
		"no maximum":  func(r *delivery.ClaimRequest) { r.Max = 0 },
		"no limit":    func(r *delivery.ClaimRequest) { r.MaxInFlight = 0 },
		"no lease":    func(r *delivery.ClaimRequest) { r.Lease = 0 },
	} {
		r := request(1)
		edit(&r)
		if _, err := b.store.Claim(b.ctx, r); err == nil {
			t.Error(name)
		}
	}
}

// Subscriptions take turns: who begins where the last claim ended gives each the same.
func TestSubscriptionsTakeTurns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const subs, rounds = 5, 10
	for range subs {
		b.subscribe()
	}
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprint(i))
	}
	b.enqueue(names...)
	turns := map[delivery.SubscriptionID]int{}
	var after delivery.SubscriptionID
	for range rounds { // of two subscriptions with two deliveries each
		claims, err := b.store.Claim(b.ctx, delivery.ClaimRequest{Claimant: "test", Max: 4, MaxInFlight: 2, Lease: time.Minute, After: after})
		b.is.NoErr(err)
		b.is.Equal(len(claims), 4)
		for _, c := range claims {
			turns[c.Subscription]++
		}
		after = claims[len(claims)-1].Subscription
		b.settle(delivery.Succeeded, claims...)
	}
	b.is.Equal(len(turns), subs)
	for id, n := range turns {
		if n != 2*2*rounds/subs {
			t.Errorf("%v had %d of %d: %v", id, n, 4*rounds, turns)
		}
	}
}

// A subscription whose deliveries all wait behind others does not hide the next one,
// nor what stands behind them.
func TestBlockedDeliveriesHideNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	flooded := b.subscribe(func(s *delivery.Settings) { s.EventTypes = []string{"thing.*"} })
	for range 500 {
		b.enqueue("hot") // each of its own transaction: each is ready
	}
	b.enqueue("cold")
	quiet := b.subscribe(func(s *delivery.Settings) { s.EventTypes = []string{"other"} })
	e := event("x")
	e.Type = "other"
	b.enqueueEvents(e)

	first := b.claim(10)
	b.is.Equal(len(first), 2)
	b.is.True(slices.ContainsFunc(first, func(c delivery.Claim) bool { return c.Subscription == quiet }))
	b.is.True(slices.ContainsFunc(first, func(c delivery.Claim) bool { return c.Subscription == flooded && c.Asset == "hot" }))
	parked, err := b.store.Park(b.ctx, 100)
	b.is.NoErr(err)
	b.is.Equal(parked, int64(499))
	b.is.Equal(assets(b.claim(10)), []string{"cold"})
	parked, err = b.store.Park(b.ctx, 100)
	b.is.NoErr(err)
	b.is.Equal(parked, int64(0)) // each once
	b.settle(delivery.Succeeded, first...)
	b.is.Equal(assets(b.claim(10)), []string{"hot"}) // woken by the settling
}

// Marking a delivery as behind another races with the other's settling; whoever wins,
// the stream goes on.
func TestParkAndSettleLeaveNoOrphan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	const streams, depth = 12, 25
	l := newLedger()
	stop := make(chan struct{})
	parked := make(chan error, 2)
	for range 2 {
		go func() {
			for {
				select {
				case <-stop:
					parked <- nil
					return
				default:
				}
				if _, err := b.store.Park(ctx, 20); err != nil {
					parked <- err
					return
				}
			}
		}()
	}
	err := together(4, func(i int) error {
		if i == 0 { // enqueue while the others claim
			for range depth {
				for n := range streams {
					err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
						_, err := delivery.Enqueue(ctx, tx, event([]string{"", "a", "b"}[n%3]+fmt.Sprint(n/3*(n%3))))
						return err
					})
					if err != nil {
						return err
					}
				}
			}
		}
		return l.work(ctx, b.store, streams*depth)
	})
	close(stop)
	b.is.NoErr(err)
	b.is.NoErr(<-parked)
	b.is.NoErr(<-parked)
	woken, err := b.store.WakeOrphans(b.ctx)
	b.is.NoErr(err)
	b.is.Equal(woken, int64(0))
}

// The search for orphans wakes what nothing else would. The state is made by hand.
func TestOrphansAreWoken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	b.enqueue("a", "b", "", "a")
	b.exec("UPDATE postlane.deliveries SET ready = NULL")
	b.is.Equal(len(b.claim(10)), 0)
	woken, err := b.store.WakeOrphans(b.ctx)
	b.is.NoErr(err)
	b.is.Equal(woken, int64(3))
	b.is.Equal(len(b.claim(10)), 3)
	woken, err = b.store.WakeOrphans(b.ctx) // what is in flight or behind it is none
	b.is.NoErr(err)
	b.is.Equal(woken, int64(0))
}

func TestAnEnqueuedStreamIsDeliveredInTheOrderOfItsTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	var want []string
	b.is.NoErr(pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) error {
		for i := range 3 { // ids that fall, so that no order of ids helps
			var events []delivery.Event
			for j := range 3 {
				e := event("a")
				e.ID = fmt.Sprintf("evt_%d", 100-10*i-j)
				want = append(want, e.ID)
				events = append(events, e)
			}
			if _, err := delivery.Enqueue(b.ctx, tx, events...); err != nil {
				return err
			}
		}
		return nil
	}))
	var got []string
	for range want {
		claims := b.claim(10)
		b.is.Equal(len(claims), 1)
		got = append(got, claims[0].EventID)
		b.settle(delivery.Succeeded, claims...)
	}
	b.is.Equal(got, want)
}

func TestBC09_ALockedHeadIsNotOvertaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	d1 := b.enqueue("k")[0].Seq
	b.enqueue("k")
	d3 := b.enqueue("l")[0].Seq

	session, err := b.pool.Begin(b.ctx)
	b.is.NoErr(err)
	defer func() { _ = session.Rollback(context.Background()) }()
	_, err = session.Exec(b.ctx, "SELECT 1 FROM postlane.deliveries WHERE seq = $1 FOR UPDATE", d1)
	b.is.NoErr(err)

	ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	claims, err := b.store.Claim(ctx, request(10)) // does not wait
	b.is.NoErr(err)
	b.is.Equal(len(claims), 1)
	b.is.Equal(claims[0].Seq, d3)
	_, err = b.store.Park(ctx, 100) // nor does this, and it marks nothing whose head it cannot lock
	b.is.NoErr(err)
	claims, err = b.store.Claim(ctx, request(10))
	b.is.NoErr(err)
	b.is.Equal(len(claims), 0)

	b.is.NoErr(session.Rollback(b.ctx))
	claims = b.claim(10)
	b.is.Equal(len(claims), 1)
	b.is.Equal(claims[0].Seq, d1)
	b.is.Equal(len(b.claim(10)), 0) // d2 never before d1 is final
	b.settle(delivery.Failed, claims...)
	b.is.Equal(len(b.claim(10)), 0)
}

func TestBC10_AClaimWhateverItsPlan(t *testing.T) {
	t.Parallel()
	for _, analyzed := range []bool{false, true} {
		t.Run(fmt.Sprintf("analyzed=%v", analyzed), func(t *testing.T) {
			b := setup(t)
			b.is = is.New(t)
			b.subscribe()
			var names []string
			for i := range 2000 {
				names = append(names, fmt.Sprint(i))
			}
			b.enqueue(names...)
			if analyzed {
				b.exec("ANALYZE postlane.deliveries, postlane.leases, postlane.subscriptions")
			}
			for _, s := range []string{"hashjoin", "mergejoin", "material", "hashagg", "sort"} {
				b.exec(fmt.Sprintf("ALTER DATABASE %s SET enable_%s = off", b.pool.Config().ConnConfig.Database, s))
			}
			b.pool.Reset()
			l := newLedger()
			b.is.NoErr(together(4, func(int) error {
				for range 50 {
					claims, err := b.store.Claim(b.ctx, delivery.ClaimRequest{Claimant: "test", Max: 5, MaxInFlight: 10_000, Lease: time.Minute})
					if err != nil {
						return err
					}
					if len(claims) > 5 {
						return fmt.Errorf("%d claims, more than 5", len(claims))
					}
					if err := l.take(claims); err != nil {
						return err
					}
				}
				return nil
			}))
			b.is.Equal(one[int](b, "SELECT count(*) FROM postlane.leases"), len(l.claimed))
		})
	}
}

// Here delivery itself is the relay: what commits late is found all the same.
func TestBC12_ALateCommitIsDelivered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	unrelated, err := b.pool.Begin(b.ctx) // open, with a transaction id, until the end
	b.is.NoErr(err)
	defer func() { _ = unrelated.Rollback(context.Background()) }()
	_, err = unrelated.Exec(b.ctx, "CREATE TEMP TABLE unrelated (n int); INSERT INTO unrelated VALUES (1)")
	b.is.NoErr(err)

	for _, commit := range []bool{true, false} {
		late, err := b.pool.Begin(b.ctx)
		b.is.NoErr(err)
		first, err := delivery.Enqueue(b.ctx, late, event("x"), event("y"))
		b.is.NoErr(err)
		second := b.enqueue("x", "z")
		b.is.True(first[0].Seq < second[0].Seq)

		claims := b.claim(10)
		got := assets(claims)
		slices.Sort(got)
		b.is.Equal(got, []string{"x", "z"}) // nothing waits for the gap
		b.settle(delivery.Succeeded, claims...)
		b.is.Equal(len(b.claim(10)), 0)
		if !commit {
			b.is.NoErr(late.Rollback(b.ctx))
			b.is.Equal(len(b.claim(10)), 0)
			continue
		}
		b.is.NoErr(late.Commit(b.ctx))
		claims = b.claim(10)
		got = assets(claims)
		slices.Sort(got)
		b.is.Equal(got, []string{"x", "y"})
		b.is.Equal(of(claims, "x").Seq, first[0].Seq)
		b.settle(delivery.Succeeded, claims...)
	}
}

// An index that happens to be in the right order hides a missing ORDER BY. Here there is no
// index, and the rows lie in the table in another order.
func TestTheOrderDoesNotHangOnThePlan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	b.exec("ALTER TABLE postlane.deliveries DROP CONSTRAINT deliveries_pkey")
	b.exec("DROP INDEX postlane.deliveries_stream, postlane.deliveries_ready")
	var want []delivery.ID
	for range 3 {
		want = append(want, ids(b.enqueue("a"))...)
	}
	for range 2 {
		want = append(want, ids(b.enqueue(fmt.Sprint("b", len(want))))...)
	}
	backwards := func() {
		for i := range want {
			b.exec("UPDATE postlane.deliveries SET attempts = attempts WHERE seq = $1", want[len(want)-1-i])
		}
	}
	backwards()
	first := b.claim(1)
	b.is.Equal(first[0].ID(), want[0]) // the first of its stream, and the first that was ready
	second := b.claim(1)
	b.is.Equal(second[0].ID(), want[3])
	b.settle(delivery.Released, second...)
	parked, err := b.store.Park(b.ctx, 100)
	b.is.NoErr(err)
	b.is.Equal(parked, int64(2))
	for i := range 3 { // woken one by one, in order
		b.settle(delivery.Succeeded, first...)
		backwards()
		streams, err := b.store.Streams(b.ctx, sub, nil, 10)
		b.is.NoErr(err)
		if i < 2 {
			b.is.Equal(streams[0].Head.ID, want[i+1])
			first = []delivery.Claim{of(b.claim(10), "a")}
			b.is.Equal(first[0].ID(), want[i+1])
		}
	}
	list := b.list(sub, delivery.Filter{})
	b.is.True(slices.IsSortedFunc(list, func(x, y delivery.Delivery) int { return int(y.ID - x.ID) }))
}

// A claim that may not look for long returns what it has found, and the next takes the
// rest.
func TestAClaimLooksForAsLongAsItMay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const subscriptions = 3000 // a claim needs some 30 ms for so many
	b.exec(`
		WITH subs AS (
			INSERT INTO postlane.subscriptions (tenant, url) SELECT 'acme', 'https://example.com/' || i FROM generate_series(1, $1::int) i RETURNING id
		), rows AS (
			SELECT id AS sub, nextval('postlane.delivery_seq') AS seq FROM subs
		), stored AS (
			INSERT INTO postlane.events (seq, tenant, id, type, content_type, payload)
			SELECT seq, 'acme', 'evt_' || seq, 'thing.changed', 'application/json', '{}' FROM rows
		)
		INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, ready)
		SELECT sub, seq, 'acme', 'evt_' || seq, 'thing.changed', seq FROM rows`, subscriptions)

	r := delivery.ClaimRequest{Claimant: "test", Max: 2 * subscriptions, MaxInFlight: 10, Lease: time.Minute, Look: time.Millisecond}
	some, err := b.store.Claim(b.ctx, r)
	b.is.NoErr(err)
	b.is.True(len(some) < subscriptions)
	r.Look = 0
	rest, err := b.store.Claim(b.ctx, r)
	b.is.NoErr(err)
	b.is.Equal(len(some)+len(rest), subscriptions)
}

// Parking goes on where it stopped, and leaves nothing behind.
func TestParkGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const subscriptions, each = 5, delivery.ParkMax/2 + 10
	for range subscriptions {
		b.subscribe()
	}
	b.exec(`
		WITH rows AS (
			SELECT nextval('postlane.delivery_seq') AS seq FROM generate_series(1, $1::int) i
		), stored AS (
			INSERT INTO postlane.events (seq, tenant, id, type, asset, content_type, payload)
			SELECT seq, 'acme', 'evt_' || seq, 'thing.changed', 'hot', 'application/json', '{}' FROM rows
		)
		INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, ready)
		SELECT s.id, r.seq, 'acme', 'evt_' || r.seq, 'thing.changed', 'hot', r.seq FROM rows r CROSS JOIN postlane.subscriptions s`, each)

	var after, before delivery.SubscriptionID
	total := 0
	for {
		parked, last, err := b.store.ParkAfter(b.ctx, after, 100)
		b.is.NoErr(err)
		total += int(parked)
		if parked < delivery.ParkMax {
			break
		}
		b.is.True(last >= before)
		before, after = last, last-1
	}
	b.is.Equal(total, subscriptions*(each-1))
	b.is.Equal(len(b.claim(100)), subscriptions)
}
