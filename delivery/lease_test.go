package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// everyVerdict are all the ways in which a claimant can end a claim.
var everyVerdict = map[string]delivery.Result{
	"succeeded":   {Verdict: delivery.Succeeded},
	"failed":      {Verdict: delivery.Failed},
	"gone":        {Verdict: delivery.Failed, Gone: true},
	"postponed":   {Verdict: delivery.Postponed, Delay: time.Hour},
	"released":    {Verdict: delivery.Released},
	"undecided":   {},
	"blameless":   {Verdict: delivery.Failed, Blameless: true},
	"last failed": {Verdict: delivery.Failed, Delay: time.Hour},
}

// lose claims one delivery and lets the lease run out and be taken back.
func lose(b *bundle, c *clock) delivery.Claim {
	b.t.Helper()
	claims := b.claim(1)
	b.is.Equal(len(claims), 1)
	c.advance(2 * time.Minute)
	reclaimed, err := b.store.Reclaim(b.ctx, 10)
	b.is.NoErr(err)
	b.is.Equal(len(reclaimed), 1)
	b.is.Equal(reclaimed[0].Fence, claims[0].Fence)
	return claims[0]
}

func TestALostLeaseChangesNothing(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"reclaimed", "another's", "another's, and settled"} {
		t.Run(next, func(t *testing.T) {
			t.Parallel()
			b, c := setupClock(t)
			sub := b.subscribe(func(s *delivery.Settings) { s.MaxAttempts = 3 })
			b.enqueue("a", "a", "b")
			b.exec("UPDATE postlane.subscriptions SET failure_count = 7") // something to forgive
			stale := lose(b, c)
			if next != "reclaimed" {
				claims := b.claim(10)
				second := of(claims, stale.Asset)
				b.is.Equal(second.Seq, stale.Seq)
				b.is.True(second.Fence > stale.Fence)
				b.is.Equal(second.Attempt, 2)
				if next != "another's" {
					b.is.Equal(b.settle(delivery.Failed, second), []delivery.Settled{"pending"})
				}
			}
			before := b.state()
			for name, r := range everyVerdict {
				r.Claim = &stale
				settlements, err := b.store.Settle(b.ctx, []delivery.Result{r})
				b.is.NoErr(err)
				if settlements[0].State != delivery.SettledLost || !errors.Is(settlements[0].Err(), delivery.ErrLeaseLost) {
					t.Errorf("%s: %v", name, settlements[0])
				}
				var inTx []delivery.Settlement
				b.is.NoErr(pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) (err error) {
					inTx, err = b.store.SettleTx(b.ctx, tx, []delivery.Result{r})
					return err
				}))
				if inTx[0].State != delivery.SettledLost {
					t.Errorf("%s in a transaction: %v", name, inTx[0])
				}
				b.unchanged(before)
			}
			lost, err := b.store.Renew(b.ctx, []*delivery.Claim{&stale}, time.Hour)
			b.is.NoErr(err)
			b.is.Equal(lost, []*delivery.Claim{&stale})
			released, err := b.store.Release(b.ctx, []*delivery.Claim{&stale})
			b.is.NoErr(err)
			b.is.Equal(released, 0)
			b.unchanged(before)
			b.is.True(b.counts(sub) != "")
		})
	}
}

// In one batch, what is lost takes nothing from what is held.
func TestALostLeaseAmongHeldOnes(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	sub := b.subscribe()
	b.enqueue("a", "b", "c", "d")
	claims := b.claim(10)
	stale := claims[1]
	stale.Fence-- // as if it had been claimed before
	results := []delivery.Result{
		{Claim: &claims[0], Verdict: delivery.Succeeded},
		{Claim: &stale, Verdict: delivery.Succeeded},
		{Claim: &claims[2], Verdict: delivery.Failed, Delay: time.Hour},
		{Claim: &claims[3], Verdict: delivery.Released},
	}
	settlements, err := b.store.Settle(b.ctx, results)
	b.is.NoErr(err)
	b.is.Equal(settlements, []delivery.Settlement{{State: delivery.SettledDelivered}, {State: delivery.SettledLost}, {State: delivery.SettledPending}, {State: delivery.SettledReleased}})
	b.is.Equal(b.counts(sub), "pending:2 delivering:1 delivered:1 ")
	lost, err := b.store.Renew(b.ctx, []*delivery.Claim{&claims[0], &stale, &claims[1]}, time.Minute)
	b.is.NoErr(err)
	b.is.Equal(lost, []*delivery.Claim{&claims[0], &stale})
	_ = c
}

func TestReclaimChargesTheAttempt(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	sub := b.subscribe()
	id := delivery.ID(b.enqueue("a", "a")[0].Seq)
	claims := b.claim(1)
	c.advance(time.Minute - time.Millisecond)
	reclaimed, err := b.store.Reclaim(b.ctx, 10)
	b.is.NoErr(err)
	b.is.Equal(len(reclaimed), 0) // not before its end
	c.advance(time.Millisecond)
	reclaimed, err = b.store.Reclaim(b.ctx, 10)
	b.is.NoErr(err)
	b.is.Equal(reclaimed, []delivery.Reclaimed{{
		Subscription: sub, Seq: claims[0].Seq, Fence: claims[0].Fence, Attempt: 1, Claimant: "test", State: delivery.SettledPending,
	}})
	again := b.claim(1)
	b.is.Equal(again[0].Seq, claims[0].Seq) // nothing overtook it
	b.is.Equal(again[0].Attempt, 2)
	attempts, err := b.store.Attempts(b.ctx, sub, id)
	b.is.NoErr(err)
	b.is.Equal(len(attempts), 1)
	b.is.Equal(attempts[0].Outcome, "stalled")
	b.is.Equal(attempts[0].Number, 1)
	b.is.True(attempts[0].Duration == nil && attempts[0].Status == nil)
}

func TestReleaseChargesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(func(s *delivery.Settings) { s.MaxAttempts = 1 })
	id := delivery.ID(b.enqueue("a", "a")[0].Seq)
	before := one[string](b, "SELECT string_agg(d::text, ' ' ORDER BY seq) FROM postlane.deliveries d")
	for range 3 {
		claims := b.claim(10)
		b.is.Equal(len(claims), 1)
		b.is.Equal(claims[0].Attempt, 1)
		released, err := b.store.Release(b.ctx, []*delivery.Claim{&claims[0]})
		b.is.NoErr(err)
		b.is.Equal(released, 1)
		b.is.Equal(one[string](b, "SELECT string_agg(d::text, ' ' ORDER BY seq) FROM postlane.deliveries d"), before)
	}
	attempts, err := b.store.Attempts(b.ctx, sub, id)
	b.is.NoErr(err)
	b.is.Equal(len(attempts), 0)
	claims := b.claim(10) // at once, and with its turn in the order
	b.is.Equal(claims[0].ID(), id)
}

func TestPostponingChargesNothing(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	b.subscribe(func(s *delivery.Settings) { s.MaxAttempts = 1 })
	b.enqueue("a", "a")
	claims := b.claim(10)
	b.is.Equal(b.settleAs(func(r *delivery.Result) { r.Verdict, r.Delay = delivery.Postponed, time.Second }, claims...), []delivery.Settled{"pending"})
	b.is.Equal(len(b.claim(10)), 0)
	ripened, next, err := b.store.Ripen(b.ctx, 10)
	b.is.NoErr(err)
	b.is.Equal(ripened, int64(0))
	b.is.Equal(next, time.Second)
	c.advance(time.Second)
	ripened, next, err = b.store.Ripen(b.ctx, 10)
	b.is.NoErr(err)
	b.is.Equal(ripened, int64(1))
	b.is.True(next < 0)
	again := b.claim(10)
	b.is.Equal(again[0].Seq, claims[0].Seq)
	b.is.Equal(again[0].Attempt, 1)
}

func TestTheLastAttemptStalled(t *testing.T) {
	t.Parallel()
	for _, onDead := range []delivery.OnDead{delivery.Continue, delivery.Hold} {
		t.Run(string(onDead), func(t *testing.T) {
			t.Parallel()
			b, c := setupClock(t)
			sub := b.subscribe(func(s *delivery.Settings) { s.MaxAttempts, s.OnDead, s.DisableAfter = 2, onDead, 1 })
			id := delivery.ID(b.enqueue("a", "a")[0].Seq)
			lose(b, c)
			lose(b, c)
			d, err := b.store.Delivery(b.ctx, sub, id)
			b.is.NoErr(err)
			b.is.Equal(d.State, delivery.Dead)
			b.is.Equal(d.Reason, "stalled")
			b.is.Equal(d.Attempts, 2)
			b.is.Equal(d.Held, onDead == delivery.Hold)
			s, err := b.store.Subscription(b.ctx, sub)
			b.is.NoErr(err)
			b.is.Equal(s.Failures, 0) // the worker's fault, not the endpoint's
			b.is.Equal(s.State, delivery.Active)
			next := b.claim(10)
			b.is.Equal(len(next), map[delivery.OnDead]int{delivery.Continue: 1, delivery.Hold: 0}[onDead])
		})
	}
}

// A reclaim that is waiting for nothing takes many, and no more than it is told.
func TestReclaimInParts(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	b.subscribe()
	b.enqueue("a", "b", "c", "", "d")
	b.is.Equal(len(b.claim(10)), 5)
	c.advance(time.Hour)
	got := map[int64]bool{}
	for _, want := range []int{2, 2, 1, 0} {
		reclaimed, err := b.store.Reclaim(b.ctx, 2)
		b.is.NoErr(err)
		b.is.Equal(len(reclaimed), want)
		for _, r := range reclaimed {
			got[r.Seq] = true
		}
	}
	b.is.Equal(len(got), 5)
}

// Several reclaim at once: each delivery is taken back, and charged, once.
func TestReclaimAtOnce(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	b.subscribe()
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprint(i))
	}
	b.enqueue(names...)
	b.is.Equal(len(b.claim(100)), 60)
	c.advance(time.Hour)
	var mu sync.Mutex
	total := 0
	b.is.NoErr(together(4, func(int) error {
		reclaimed, err := b.store.Reclaim(b.ctx, 1000)
		mu.Lock()
		defer mu.Unlock()
		total += len(reclaimed)
		return err
	}))
	b.is.Equal(total, 60)
	b.is.Equal(one[int](b, "SELECT count(*) FROM postlane.attempts"), 60)
	b.is.Equal(one[int](b, "SELECT max(attempts) FROM postlane.deliveries"), 1)
}

func TestBC06_ASweepDoesNotReopenWhatIsSettled(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	sub := b.subscribe()
	b.enqueue("a")
	claims := b.claim(1)
	c.advance(time.Hour)

	// The sweep has looked and stands still.
	sweep, err := b.pool.BeginTx(b.ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	b.is.NoErr(err)
	defer func() { _ = sweep.Rollback(context.Background()) }()
	now := c.now()
	rows, err := dbgen.New().LeaseReclaim(b.ctx, sweep, &dbgen.LeaseReclaimParams{Now: &now, Max: 10})
	b.is.NoErr(err)
	b.is.Equal(len(rows), 1)

	// The worker has the answer and settles, which has to wait for the sweep.
	settled := make(chan delivery.Settlement, 1)
	go func() {
		s, err := b.store.Settle(b.ctx, []delivery.Result{{Claim: &claims[0], Verdict: delivery.Succeeded}})
		if err != nil {
			s = []delivery.Settlement{{State: delivery.Settled(err.Error())}}
		}
		settled <- s[0]
	}()
	pgtest.WaitForBlocked(t, b.pool, 1)
	b.is.NoErr(sweep.Rollback(b.ctx)) // it died; the worker was first after all
	b.is.Equal((<-settled).State, delivery.SettledDelivered)

	before := b.state()
	reclaimed, err := b.store.Reclaim(b.ctx, 10)
	b.is.NoErr(err)
	b.is.Equal(len(reclaimed), 0)
	b.unchanged(before)
	b.is.Equal(b.counts(sub), "delivered:1 ")
}

// The other way round: the worker is settling when the sweep looks.
func TestBC06_ASweepStepsOverWhatIsBeingSettled(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	sub := b.subscribe()
	b.enqueue("a")
	claims := b.claim(1)
	c.advance(time.Hour)
	tx, err := b.pool.Begin(b.ctx)
	b.is.NoErr(err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	s, err := b.store.SettleTx(b.ctx, tx, []delivery.Result{{Claim: &claims[0], Verdict: delivery.Succeeded}})
	b.is.NoErr(err)
	b.is.Equal(s[0].State, delivery.SettledDelivered)
	reclaimed, err := b.store.Reclaim(b.ctx, 10)
	b.is.NoErr(err)
	b.is.Equal(len(reclaimed), 0)
	b.is.NoErr(tx.Commit(b.ctx))
	b.is.Equal(b.counts(sub), "delivered:1 ")
}

func TestBC07_AFrozenWorkerTakesNothingBack(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	sub := b.subscribe()
	b.enqueue("a")
	frozen := lose(b, c)
	second := b.claim(1)
	b.is.Equal(second[0].Seq, frozen.Seq)

	before := b.state()
	lost, err := b.store.Renew(b.ctx, []*delivery.Claim{&frozen}, time.Hour)
	b.is.NoErr(err)
	b.is.Equal(len(lost), 1)
	b.is.Equal(b.settle(delivery.Succeeded, frozen), []delivery.Settled{"lost"})
	b.is.Equal(b.settle(delivery.Failed, frozen), []delivery.Settled{"lost"})
	b.unchanged(before)

	b.is.Equal(b.settle(delivery.Succeeded, second...), []delivery.Settled{"delivered"})
	b.is.Equal(b.counts(sub), "delivered:1 ")
	attempts, err := b.store.Attempts(b.ctx, sub, second[0].ID())
	b.is.NoErr(err)
	b.is.Equal(len(attempts), 2) // stalled, and the second's
}

// A lease that ran out and that nobody has reclaimed yet is still the claimant's.
func TestAnExpiredLeaseIsHeldUntilItIsReclaimed(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	b.subscribe()
	b.enqueue("a")
	claims := b.claim(1)
	c.advance(time.Hour)
	b.is.Equal(len(b.claim(1)), 0)
	lost, err := b.store.Renew(b.ctx, []*delivery.Claim{&claims[0]}, time.Minute)
	b.is.NoErr(err)
	b.is.Equal(len(lost), 0)
	reclaimed, err := b.store.Reclaim(b.ctx, 10)
	b.is.NoErr(err)
	b.is.Equal(len(reclaimed), 0) // renewed meanwhile
	b.is.Equal(b.settle(delivery.Succeeded, claims...), []delivery.Settled{"delivered"})
}

// times notes every time that is sent to the database.
type times struct {
	mu   sync.Mutex
	sent []any
}

func (x *times) note(args []any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, a := range args {
		switch v := a.(type) {
		case time.Time:
			x.sent = append(x.sent, v)
		case *time.Time:
			if v != nil {
				x.sent = append(x.sent, *v)
			}
		}
	}
}

func (x *times) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	x.note(d.Args)
	return ctx
}
func (x *times) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (x *times) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		x.note(q.Arguments)
	}
	return ctx
}
func (x *times) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (x *times) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// The worker's clock decides nothing because it is never told to the database: no
// statement of a delivery's life carries a time, also where the attempt's evidence
// has one from a clock that is days off.
func TestBC08_AWorkersClockDecidesNothing(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	var x times
	config.ConnConfig.Tracer = &x
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b := setupOn(t, pool, delivery.StoreConfig{})
	sub := b.subscribe(func(s *delivery.Settings) { s.MaxAttempts = 2 })

	for _, skew := range []time.Duration{-10 * time.Minute, 10 * time.Minute, 0} {
		// Without a monotonic reading, as a time from elsewhere.
		started := time.Now().Add(skew).Round(0)
		b.enqueue("a", "b")
		claims := b.claim(10)
		b.is.Equal(len(claims), 2)
		lost, err := b.store.Renew(b.ctx, []*delivery.Claim{&claims[0], &claims[1]}, 5*time.Second)
		b.is.NoErr(err)
		b.is.Equal(len(lost), 0)
		b.is.True(one[bool](b, `SELECT bool_and(lease_until - clock_timestamp() BETWEEN interval '4 s' AND interval '5 s') FROM postlane.leases`))
		b.settleAs(func(r *delivery.Result) {
			r.Verdict, r.Delay, r.Attempt.Started = delivery.Failed, 30*time.Second, started
		}, claims[0])
		b.is.True(one[bool](b, `SELECT due_at - clock_timestamp() BETWEEN interval '29 s' AND interval '30 s' FROM postlane.deliveries WHERE due_at IS NOT NULL`))
		b.settleAs(func(r *delivery.Result) { r.Verdict, r.Attempt.Started = delivery.Succeeded, started }, claims[1])
		b.is.True(one[bool](b, `SELECT bool_and(clock_timestamp() - settled_at < interval '5 s') FROM postlane.settled`))
		_, _, err = b.store.Ripen(b.ctx, 10)
		b.is.NoErr(err)
		_, err = b.store.Reclaim(b.ctx, 10)
		b.is.NoErr(err)
		_, err = b.store.Park(b.ctx, 100)
		b.is.NoErr(err)
		page, err := b.store.Deliveries(b.ctx, sub, delivery.Filter{States: []delivery.DeliveryState{delivery.Pending}}, 0, 10)
		b.is.NoErr(err)
		b.is.Equal(len(page.Deliveries), 1)
		b.is.NoErr(b.store.Discard(b.ctx, sub, page.Deliveries[0].ID, "no longer needed"))
	}
	b.is.Equal(len(x.sent), 0)
}
