package delivery_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/receiver"
)

// aheadClaim is a claim with what may be sent behind it.
type aheadClaim struct {
	delivery.Claim

	Ahead []delivery.Claim
}

// claimAhead claims one stream with what may be sent behind its first.
func (b *bundle) claimAhead(ahead int) aheadClaim {
	b.t.Helper()
	r := request(1)
	r.Ahead = ahead
	claims, err := b.store.Claim(b.ctx, r)
	b.is.NoErr(err)
	b.is.Equal(len(claims), 1)
	runs, err := b.store.Ahead(b.ctx, claims, ahead)
	b.is.NoErr(err)
	return aheadClaim{claims[0], runs[0]}
}

// goesOn is a success after which the claimant goes on with next.
func goesOn(c, next *delivery.Claim) delivery.Result {
	return delivery.Result{Claim: c, Verdict: delivery.Succeeded, Next: next, Attempt: delivery.AttemptEvidence{Outcome: "delivered", Status: 200, Answered: true}}
}

// settleResults settles results as they are, in one call.
func (b *bundle) settleResults(results ...delivery.Result) []delivery.Settled {
	b.t.Helper()
	settlements, err := b.store.Settle(b.ctx, results)
	b.is.NoErr(err)
	states := make([]delivery.Settled, len(settlements))
	for i, s := range settlements {
		states[i] = s.State
	}
	return states
}

func seqs(first int64, ahead []delivery.Claim) []int64 {
	list := []int64{first}
	for i := range ahead {
		list = append(list, ahead[i].Seq)
	}
	return list
}

func TestAClaimShowsWhatFollowsInItsStream(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	enqueued := b.enqueue("a", "b", "a", "a", "b", "a", "", "")
	r := request(10)
	r.Ahead = 2
	claims, err := b.store.Claim(b.ctx, r)
	b.is.NoErr(err)
	b.is.Equal(len(claims), 3)
	runs, err := b.store.Ahead(b.ctx, claims, 2)
	b.is.NoErr(err)
	want := map[string][]int64{
		"a": {enqueued[0].Seq, enqueued[2].Seq, enqueued[3].Seq}, "b": {enqueued[1].Seq, enqueued[4].Seq}, "": {enqueued[6].Seq, enqueued[7].Seq},
	}
	for i, c := range claims {
		b.is.Equal(seqs(c.Seq, runs[i]), want[c.Asset])
		before := c.Seq
		for _, x := range runs[i] {
			b.is.Equal(x.Prev, before)
			b.is.Equal([]any{x.Subscription, x.Tenant, x.Asset, x.Fence, x.Revision, x.Attempt}, []any{c.Subscription, c.Tenant, c.Asset, c.Fence, c.Revision, 1})
			b.is.Equal([]any{string(x.Payload), x.EventType}, []any{`{"a":1}`, "thing.changed"})
			before = x.Seq
		}
		if c.Asset == "a" {
			b.is.Equal(runs[i][0].EventID, enqueued[2].ID)
		}
	}
	b.is.Equal(len(b.claim(10)), 0) // the streams are leased
}

func TestARunEndsBeforeWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"waits for its time": "due_at = now() + interval '1 hour', ready = NULL",
		"tried before":       "attempts = 1",
		"held":               "held_at = now(), ready = NULL, reason = 'x'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.subscribe()
			enqueued := b.enqueue("a", "a", "a", "a")
			b.exec("UPDATE postlane.deliveries SET "+change+" WHERE seq = $1", enqueued[2].Seq)
			c := b.claimAhead(10)
			b.is.Equal(seqs(c.Seq, c.Ahead), []int64{enqueued[0].Seq, enqueued[1].Seq})
		})
	}
	t.Run("the first was tried before", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.subscribe()
		b.enqueue("a", "a")
		b.exec("UPDATE postlane.deliveries SET attempts = 1")
		b.is.Equal(len(b.claimAhead(10).Ahead), 0)
	})
}

func TestNothingIsSentBehindAClaimOnceItsSubscriptionHasChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*bundle, delivery.SubscriptionID) error{
		"rotated": func(b *bundle, id delivery.SubscriptionID) error {
			_, err := b.store.RotateSecret(b.ctx, id, time.Hour)
			return err
		},
		"paused": func(b *bundle, id delivery.SubscriptionID) error {
			_, err := b.store.Pause(b.ctx, id, "")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			sub := b.subscribe()
			b.enqueue("a")
			r := request(1)
			r.Ahead = 5
			claims, err := b.store.Claim(b.ctx, r)
			b.is.NoErr(err)
			b.is.NoErr(change(b, sub))
			b.enqueue("a")
			runs, err := b.store.Ahead(b.ctx, claims, 5)
			b.is.NoErr(err)
			b.is.Equal(len(runs[0]), 0) // it would go out as the subscription was
		})
	}
}

func TestARunIsSettledInOrderUnderOneLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	b.enqueue("a", "a", "a", "a", "a", "a")
	c := b.claimAhead(4)
	run := []*delivery.Claim{&c.Claim, &c.Ahead[0], &c.Ahead[1], &c.Ahead[2], &c.Ahead[3]}

	// Not before the one in front of it.
	b.is.Equal(b.settleResults(goesOn(run[1], run[2])), []delivery.Settled{delivery.SettledLost})
	b.is.Equal(b.settleResults(goesOn(run[0], run[1])), []delivery.Settled{delivery.SettledDelivered})
	b.is.Equal(b.counts(sub), "pending:4 delivering:1 delivered:1 ")
	b.is.Equal(len(b.claim(10)), 0)                                                               // the lease is still held
	b.is.Equal(b.settleResults(goesOn(run[0], run[1])), []delivery.Settled{delivery.SettledLost}) // once

	// Several at once, and the last not delivered.
	b.is.Equal(b.settleResults(goesOn(run[1], run[2]), goesOn(run[2], run[3]), delivery.Result{
		Claim: run[3], Verdict: delivery.Failed, Delay: time.Hour, Attempt: delivery.AttemptEvidence{Outcome: "http_status", Status: 500, Answered: true},
	}), []delivery.Settled{delivery.SettledDelivered, delivery.SettledDelivered, delivery.SettledPending})
	b.is.Equal(b.counts(sub), "pending:3 delivered:3 ")
	b.is.Equal(one[int](b, "SELECT count(*) FROM postlane.leases"), 0)
	b.is.Equal(one[int](b, "SELECT count(*) FROM postlane.attempts WHERE number = 1"), 4)
	b.is.Equal(len(b.claim(10)), 0) // its stream waits for it
	b.is.Equal(b.settleResults(goesOn(run[4], nil)), []delivery.Settled{delivery.SettledLost})
}

func TestARunThatIsGivenUpLeavesItsStreamToOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	b.enqueue("a", "a", "a", "a")
	// As a claim that finds no more moves away what stands behind the first.
	c := b.claimAhead(3)
	b.is.Equal(b.settleResults(goesOn(&c.Claim, nil)), []delivery.Settled{delivery.SettledDelivered})
	_, err := b.store.Park(b.ctx, 100)
	b.is.NoErr(err)

	c = b.claimAhead(3)
	b.is.Equal(b.settleResults(goesOn(&c.Claim, &c.Ahead[0]), delivery.Result{Claim: &c.Ahead[0], Verdict: delivery.Released}),
		[]delivery.Settled{delivery.SettledDelivered, delivery.SettledReleased})
	b.is.Equal(b.counts(sub), "pending:2 delivered:2 ")
	c = b.claimAhead(3)
	b.is.Equal(c.Attempt, 1)
	b.is.Equal(b.settleResults(goesOn(&c.Claim, &c.Ahead[0])), []delivery.Settled{delivery.SettledDelivered})
	b.is.Equal(b.settleResults(delivery.Result{Claim: &c.Ahead[0], Verdict: delivery.Released}), []delivery.Settled{delivery.SettledReleased})
	b.is.Equal(b.claimAhead(3).Seq, c.Ahead[0].Seq)
}

func TestALeaseLostInARunIsChargedToWhereItStands(t *testing.T) {
	t.Parallel()
	b, clock := setupClock(t)
	sub := b.subscribe()
	b.enqueue("a", "a", "a", "a")
	c := b.claimAhead(3)
	b.is.Equal(b.settleResults(goesOn(&c.Claim, &c.Ahead[0])), []delivery.Settled{delivery.SettledDelivered})
	lost, err := b.store.Renew(b.ctx, []*delivery.Claim{&c.Claim}, time.Minute) // by any of the run
	b.is.NoErr(err)
	b.is.Equal(len(lost), 0)
	clock.advance(2 * time.Minute)
	reclaimed, err := b.store.Reclaim(b.ctx, 10)
	b.is.NoErr(err)
	b.is.Equal(len(reclaimed), 1)
	b.is.Equal(reclaimed[0].Seq, c.Ahead[0].Seq)
	b.is.Equal(b.settleResults(goesOn(&c.Ahead[0], &c.Ahead[1])), []delivery.Settled{delivery.SettledLost})
	again := b.claimAhead(3)
	b.is.Equal([]any{again.Seq, again.Attempt, len(again.Ahead)}, []any{c.Ahead[0].Seq, 2, 0}) // it may be what killed the worker
	b.is.Equal(b.counts(sub), "pending:2 delivering:1 delivered:1 ")
}

func TestNobodyDiscardsWhatARunMaySend(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	enqueued := b.enqueue("a", "a", "a", "a")
	c := b.claimAhead(2)
	for _, e := range enqueued[:3] {
		b.is.True(errors.Is(b.store.Discard(b.ctx, sub, delivery.ID(e.Seq), "x"), delivery.ErrInFlight))
	}
	b.is.NoErr(b.store.Discard(b.ctx, sub, delivery.ID(enqueued[3].Seq), "x"))
	b.settleResults(goesOn(&c.Claim, nil))
	b.is.NoErr(b.store.Discard(b.ctx, sub, delivery.ID(enqueued[2].Seq), "x"))
}

func TestADiscardAndAClaimOfItsStreamDoNotMeet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	enqueued := b.enqueue("a", "a")
	// As Discard locks, in a transaction that stays open.
	tx, err := b.pool.Begin(b.ctx)
	b.is.NoErr(err)
	_, err = tx.Exec(b.ctx, "SELECT FROM postlane.deliveries WHERE coalesce(asset, '') = 'a' ORDER BY seq LIMIT 1 FOR UPDATE")
	b.is.NoErr(err)
	b.is.Equal(len(b.claim(10)), 0)
	_, err = tx.Exec(b.ctx, "DELETE FROM postlane.deliveries WHERE seq = $1", enqueued[1].Seq)
	b.is.NoErr(err)
	b.is.NoErr(tx.Commit(b.ctx))
	b.is.Equal(len(b.claimAhead(10).Ahead), 0)
}

// A claim whose statement began before another claim of the stream was settled does not
// send ahead what that one has delivered.
func TestWhatIsAheadIsReadUnderTheLease(t *testing.T) {
	t.Parallel()
	b := setupOn(t, pgtest.NewDirect(t), delivery.StoreConfig{}) // the gate is a session's
	b.subscribe()
	b.exec(`CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_advisory_xact_lock(CASE NEW.claimant WHEN 'first' THEN 41 ELSE 42 END); RETURN NEW; END $$`)
	b.exec("CREATE TRIGGER gate BEFORE INSERT ON postlane.leases FOR EACH ROW EXECUTE FUNCTION gate()")
	gate, err := b.pool.Acquire(b.ctx)
	b.is.NoErr(err)
	defer gate.Release()
	_, err = gate.Exec(b.ctx, "SELECT pg_advisory_lock(41), pg_advisory_lock(42)")
	b.is.NoErr(err)
	claim := func(who string) chan []delivery.Claim {
		claimed := make(chan []delivery.Claim, 1)
		go func() {
			r := request(10)
			r.Claimant, r.Ahead = who, 5
			claims, err := b.store.Claim(b.ctx, r)
			if err != nil {
				t.Error(err)
			}
			claimed <- claims
		}()
		return claimed
	}
	open := func(key int) {
		_, err := gate.Exec(b.ctx, "SELECT pg_advisory_unlock($1)", key)
		b.is.NoErr(err)
	}
	tx, err := b.pool.Begin(b.ctx)
	b.is.NoErr(err)
	lower, err := delivery.Enqueue(b.ctx, tx, event("a"))
	b.is.NoErr(err)
	higher := b.enqueue("a")
	first := claim("first")
	pgtest.WaitForBlocked(t, b.pool, 1)
	b.is.NoErr(tx.Commit(b.ctx))
	second := claim("second")
	pgtest.WaitForBlocked(t, b.pool, 2)
	open(41)
	claims := await(t, first)
	b.is.Equal(claims[0].Seq, higher[0].Seq)
	b.settle(delivery.Succeeded, claims...)
	open(42)
	claims = await(t, second)
	b.is.Equal(claims[0].Seq, lower[0].Seq)
	runs, err := b.store.Ahead(b.ctx, claims, 5)
	b.is.NoErr(err)
	b.is.Equal(len(runs[0]), 0)
}

func TestADeepStreamRunsAhead(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	s.enqueue(slices.Repeat([]string{"one"}, 300)...)
	c := s.config()
	claims := 0
	c.Observer.Claimed = func(n int, _ time.Duration) { claims += n }
	_, stop := s.dispatch(c)
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 300))
	s.eventually(func() bool { return s.counts(sub) == "delivered:300 " })
	s.is.NoErr(stop())
	s.is.True(claims < 300)
	v := s.receiver.Verdict()
	s.is.Equal([]int64{v.Duplicates, v.OutOfOrder, v.Overlaps}, []int64{0, 0, 0})
	s.sound()
	for i, d := range s.log(sub) {
		s.is.Equal(d.Attempts, 1)
		if i > 0 {
			s.is.Equal(s.attempts(sub, d.ID)[0].Number, 1)
		}
	}
}

// A database that is slow to say what follows costs a run, and nothing else.
func TestWhatCannotBeReadAheadInTimeIsClaimedLater(t *testing.T) {
	t.Parallel()
	tr := newTracer()
	read := make(chan struct{})
	letRead := sync.OnceFunc(func() { close(read) })
	tr.before = func(name string) {
		if name == "DeliveryAhead" {
			<-read
		}
	}
	s := setupSiteWith(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tr }, delivery.StoreConfig{})
	sub := s.endpoint("/a")
	s.enqueue("one", "one", "one")
	lines := make(chan string, 1000)
	c := s.config()
	c.Logger = logTo(lines)
	_, stop := s.dispatch(c)
	defer letRead()                                                                // before the dispatcher is stopped, also where the test fails
	s.eventually(func() bool { return s.counts(sub) == "pending:2 delivered:1 " }) // though what follows is not read
	letRead()
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 3))
	s.eventually(func() bool { return s.counts(sub) == "delivered:3 " })
	s.is.NoErr(stop())
	close(lines)
	for line := range lines {
		s.is.True(!strings.Contains(line, "level=ERROR"))
	}
	v := s.receiver.Verdict()
	s.is.Equal([]int64{v.Duplicates, v.OutOfOrder, v.Overlaps}, []int64{0, 0, 0})
	s.sound()
}

// What fails in the middle of a run ends it, and nothing behind it is sent.
func TestAFailureEndsARun(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	s.enqueue(slices.Repeat([]string{"one"}, 20)...)
	var answered atomic.Int64
	s.behave("/a", receiver.Behaviour{Answer: func(receiver.Arrival) int {
		if answered.Add(1) > 3 {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	}})
	c := s.config()
	c.Schedule = schedule(t, time.Hour)
	w := observe(t, &c)
	s.dispatch(c)
	w.outcomes(4)
	s.passes(3, w)
	s.is.Equal(s.counts(sub), "pending:17 delivered:3 ")
	s.is.Equal(s.requests("/a"), 4)
	s.is.Equal(one[int](s.bundle, "SELECT count(*) FROM postlane.leases"), 0)
}

// Whoever paused a subscription sees no request of a run start afterwards.
func TestAPauseEndsARun(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	s.enqueue(slices.Repeat([]string{"one"}, 2000)...)
	s.endpoint("/b") // without an active subscription nothing would be claimed
	arrivals, stopArrivals := s.receiver.Arrivals(10_000)
	defer stopArrivals()
	c := s.config()
	w := observe(t, &c)
	s.dispatch(c)
	await(t, arrivals)
	_, err := s.store.Pause(s.ctx, sub, "x")
	s.is.NoErr(err)
	s.eventually(func() bool { return s.receiver.Verdict().Open == 0 })
	n := s.requests("/a")
	s.passes(3, w)
	s.is.Equal(s.requests("/a"), n)
	s.sound()
}
