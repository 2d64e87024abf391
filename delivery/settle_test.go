package delivery_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
)

// die fails a delivery of an asset for the last time.
func (b *bundle) die(asset string) delivery.Settlement {
	b.t.Helper()
	b.enqueue(asset)
	c := of(b.claim(1000), asset)
	settlements, err := b.store.Settle(b.ctx, []delivery.Result{{Claim: &c, Verdict: delivery.Failed, Attempt: delivery.AttemptEvidence{Outcome: "http_status"}}})
	b.is.NoErr(err)
	return settlements[0]
}

func (b *bundle) succeed(asset string) {
	b.t.Helper()
	b.enqueue(asset)
	b.is.Equal(b.settle(delivery.Succeeded, of(b.claim(1000), asset)), []delivery.Settled{"delivered"})
}

func (b *bundle) subscription(id delivery.SubscriptionID) *delivery.Subscription {
	b.t.Helper()
	s, err := b.store.Subscription(b.ctx, id)
	b.is.NoErr(err)
	return s
}

func onlyAttempt(s *delivery.Settings) { s.MaxAttempts = 1 }

func TestASuccessForgives(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(onlyAttempt)
	other := b.subscribe(onlyAttempt, func(s *delivery.Settings) { s.EventTypes = []string{"never.*"} })
	b.exec("UPDATE postlane.subscriptions SET failure_count = 3 WHERE id = $1", other)
	b.die("a")
	b.die("b")
	b.is.Equal(b.subscription(sub).Failures, 2)
	b.succeed("c")
	b.is.Equal(b.subscription(sub).Failures, 0)
	b.is.Equal(b.subscription(other).Failures, 3)
}

// Every success would otherwise write the row that every claim reads.
func TestASuccessWithNothingToForgiveDoesNotWriteTheSubscription(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	row := func() string {
		return one[string](b, "SELECT ctid::text || xmin::text || xmax::text || s::text FROM postlane.subscriptions s")
	}
	before := row()
	for range 3 {
		b.succeed("a")
	}
	b.is.Equal(row(), before)
	b.enqueue("a")
	b.settle(delivery.Failed, b.claim(1)...) // with attempts left: nothing either
	b.is.Equal(row(), before)
}

// A subscription whose row somebody holds does not stop the successes that need nothing of it.
func TestASuccessDoesNotWaitForTheSubscription(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	tx, err := b.pool.Begin(b.ctx)
	b.is.NoErr(err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(b.ctx, "SELECT 1 FROM postlane.subscriptions FOR UPDATE")
	b.is.NoErr(err)
	ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	b.ctx = ctx
	b.succeed("a")
}

func TestFailuresMoveOnlyOnDeath(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	sub := b.subscribe(func(s *delivery.Settings) { s.MaxAttempts, s.DisableAfter = 5, 2 })
	b.enqueue("poison")
	// One payload that chokes the endpoint uses up its attempts and counts once.
	for range 5 {
		b.is.Equal(b.subscription(sub).Failures, 0)
		claims := b.claim(10)
		b.is.Equal(len(claims), 1)
		b.settleAs(func(r *delivery.Result) { r.Verdict, r.Delay = delivery.Failed, time.Minute }, claims...)
		c.advance(time.Minute)
		_, _, err := b.store.Ripen(b.ctx, 10)
		b.is.NoErr(err)
	}
	b.is.Equal(b.counts(sub), "dead:1 ")
	s := b.subscription(sub)
	b.is.Equal(s.Failures, 1)
	b.is.Equal(s.State, delivery.Active)
}

func TestABlamelessDeathCountsNoFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(onlyAttempt, func(s *delivery.Settings) { s.DisableAfter = 1 })
	b.enqueue("a")
	b.is.Equal(b.settleAs(func(r *delivery.Result) { r.Verdict, r.Blameless = delivery.Failed, true }, b.claim(1)...), []delivery.Settled{"dead"})
	s := b.subscription(sub)
	b.is.Equal(s.Failures, 0)
	b.is.Equal(s.State, delivery.Active)
}

func TestTheThresholdDisables(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	sub := b.subscribe(onlyAttempt, func(s *delivery.Settings) { s.DisableAfter = 3 })
	revision := b.subscription(sub).Revision
	b.is.Equal(b.die("a").Disabled, "")
	b.is.Equal(b.die("b").Disabled, "")
	b.enqueue("c", "d")
	waiting := b.claim(10)
	b.is.Equal(len(waiting), 2)
	settlements, err := b.store.Settle(b.ctx, []delivery.Result{{Claim: &waiting[0], Verdict: delivery.Failed, Attempt: delivery.AttemptEvidence{Outcome: "timeout"}}})
	b.is.NoErr(err)
	b.is.Equal(settlements[0].Disabled, "3 deliveries in a row died, the last with: attempts used up: timeout")
	s := b.subscription(sub)
	b.is.Equal(s.State, delivery.Disabled)
	b.is.Equal(s.Reason, settlements[0].Disabled)
	b.is.True(s.Since.Equal(c.now()))
	b.is.True(s.Revision > revision)
	// What is in flight is settled as its answer has it, and counts no second disabling.
	b.is.Equal(b.settle(delivery.Failed, waiting[1]), []delivery.Settled{"dead"})
	again := b.subscription(sub)
	b.is.Equal(again.Reason, s.Reason)
	b.is.Equal(again.Since, s.Since)
	// Nothing is lost, and nothing is sent.
	b.enqueue("e")
	b.is.Equal(len(b.claim(10)), 0)
	b.is.Equal(b.counts(sub), "pending:1 dead:4 ")
}

func TestNeverDisables(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(onlyAttempt, func(s *delivery.Settings) { s.DisableAfter = delivery.Never })
	for range 25 {
		b.is.Equal(b.die("a").Disabled, "")
	}
	s := b.subscription(sub)
	b.is.Equal(s.State, delivery.Active)
	b.is.Equal(s.Failures, 25)
	b.is.Equal(s.DisableAfter, delivery.Never)
}

// Many deaths in one batch are all counted.
func TestDeathsOfOneBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(onlyAttempt, func(s *delivery.Settings) { s.DisableAfter = 4 })
	b.enqueue("a", "b", "c", "d", "e")
	claims := b.claim(10)
	b.settle(delivery.Failed, claims[:3]...)
	b.is.Equal(b.subscription(sub).Failures, 3)
	b.is.Equal(b.subscription(sub).State, delivery.Active)
	b.settle(delivery.Failed, claims[3:]...)
	b.is.Equal(b.subscription(sub).Failures, 5)
	b.is.Equal(b.subscription(sub).State, delivery.Disabled)
}

func TestGoneDisablesAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(func(s *delivery.Settings) { s.DisableAfter = delivery.Never })
	id := delivery.ID(b.enqueue("a", "a")[0].Seq)
	claims := b.claim(10)
	settlements, err := b.store.Settle(b.ctx, []delivery.Result{{Claim: &claims[0], Verdict: delivery.Failed, Gone: true,
		Attempt: delivery.AttemptEvidence{Outcome: "gone", Status: 410, Answered: true}}})
	b.is.NoErr(err)
	b.is.Equal(settlements[0], delivery.Settlement{State: delivery.SettledDead, Disabled: "the endpoint answered 410 Gone"})
	s := b.subscription(sub)
	b.is.Equal(s.State, delivery.Disabled)
	b.is.Equal(s.Reason, "the endpoint answered 410 Gone")
	d, err := b.store.Delivery(b.ctx, sub, id)
	b.is.NoErr(err)
	b.is.Equal(d.State, delivery.Dead)
	b.is.Equal(d.Reason, "the endpoint answered 410 Gone")
	b.is.Equal(len(b.claim(10)), 0)
	_, err = b.store.Enable(b.ctx, sub)
	b.is.NoErr(err)
	b.is.Equal(len(b.claim(10)), 1) // the next in order was kept
}

func TestBC26_AnEnabledSubscriptionCountsFromZero(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(onlyAttempt, func(s *delivery.Settings) { s.DisableAfter = 5 })
	for range 5 {
		b.die("a")
	}
	b.is.Equal(b.subscription(sub).State, delivery.Disabled)
	s, err := b.store.Enable(b.ctx, sub)
	b.is.NoErr(err)
	b.is.Equal(s.State, delivery.Active)
	b.is.Equal(s.Failures, 0)
	b.is.Equal(s.Reason, "")
	b.die("a")
	b.is.Equal(b.subscription(sub).State, delivery.Active)
	b.succeed("a")
	for range 4 {
		b.die("a")
	}
	b.is.Equal(b.subscription(sub).State, delivery.Active)
	b.die("a")
	b.is.Equal(b.subscription(sub).State, delivery.Disabled)
}

func TestBC23_AnEventThatUsedUpItsAttemptsIsADeadLetter(t *testing.T) {
	t.Parallel()
	for _, onDead := range []delivery.OnDead{delivery.Continue, delivery.Hold} {
		t.Run(string(onDead), func(t *testing.T) {
			t.Parallel()
			b, c := setupClock(t)
			sub := b.subscribe(func(s *delivery.Settings) { s.MaxAttempts, s.OnDead = 3, onDead })
			id := delivery.ID(b.enqueue("k", "k")[0].Seq)
			for n := range 3 {
				claims := b.claim(10)
				b.is.Equal(len(claims), 1)
				b.is.Equal(claims[0].ID(), id)
				b.is.Equal(claims[0].Attempt, n+1)
				b.settleAs(func(r *delivery.Result) {
					r.Verdict, r.Delay, r.Attempt.Error = delivery.Failed, time.Minute, "it said 500"
				}, claims...)
				b.is.Equal(len(b.claim(10)), 0+map[bool]int{true: 1}[n == 2 && onDead == delivery.Continue])
				c.advance(time.Minute)
				_, _, err := b.store.Ripen(b.ctx, 10)
				b.is.NoErr(err)
			}
			d, err := b.store.Delivery(b.ctx, sub, id)
			b.is.NoErr(err)
			b.is.Equal(d.State, delivery.Dead)
			b.is.Equal(d.Attempts, 3)
			b.is.Equal(d.Reason, "attempts used up: http_status")
			attempts, err := b.store.Attempts(b.ctx, sub, id)
			b.is.NoErr(err)
			b.is.Equal(*attempts[2].Status, 500)
			b.is.Equal(attempts[2].Error, "it said 500")
			if onDead == delivery.Hold { // the stream is shown as blocked
				streams, err := b.store.Streams(b.ctx, sub, nil, 10)
				b.is.NoErr(err)
				b.is.Equal(len(streams), 1)
				b.is.True(streams[0].Head.Held)
				b.is.Equal(streams[0].Depth, 2)
			}
		})
	}
}

func TestBC24_AttemptsAreCountedFromOne(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{3, 1} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			b, c := setupClock(t)
			sub := b.subscribe(func(s *delivery.Settings) { s.MaxAttempts = limit })
			id := delivery.ID(b.enqueue("a")[0].Seq)
			requests := 0
			for range limit + 5 {
				claims := b.claim(10)
				requests += len(claims)
				b.settleAs(func(r *delivery.Result) { r.Verdict, r.Delay = delivery.Failed, time.Second }, claims...)
				c.advance(time.Minute)
				_, _, err := b.store.Ripen(b.ctx, 10)
				b.is.NoErr(err)
			}
			b.is.Equal(requests, limit)
			attempts, err := b.store.Attempts(b.ctx, sub, id)
			b.is.NoErr(err)
			b.is.Equal(len(attempts), limit)
			for i, a := range attempts {
				b.is.Equal(a.Number, i+1)
			}
			b.is.Equal(b.counts(sub), "dead:1 ")
		})
	}
}

func TestBC41_AnyBytesOfAnAnswerAreStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	bodies := [][]byte{[]byte("a\x00b"), []byte("caf\xe9"), {}, nil, bytes.Repeat([]byte{0xff, 0}, 8192)}
	for _, status := range []int{200, 500} {
		for i, body := range bodies {
			e := b.enqueue(fmt.Sprintf("%d %d", status, i))
			claims := b.claim(10)
			b.is.Equal(len(claims), 1)
			want := delivery.SettledDelivered
			states := b.settleAs(func(r *delivery.Result) {
				r.Verdict = delivery.Succeeded
				if status == 500 {
					r.Verdict, r.Delay, want = delivery.Failed, time.Hour, delivery.SettledPending
				}
				r.Attempt = delivery.AttemptEvidence{
					Outcome: "odd\x00\xff", Status: status, Answered: true, Answer: body, AnswerCut: i == 4,
					Headers: []byte("X-Odd: \xff\n"), Error: "dial \x00 \xff",
				}
			}, claims...)
			b.is.Equal(states, []delivery.Settled{want})
			attempts, err := b.store.Attempts(b.ctx, sub, delivery.ID(e[0].Seq))
			b.is.NoErr(err)
			b.is.Equal(len(attempts), 1)
			a := attempts[0]
			b.is.True(bytes.Equal(a.Answer, body))
			b.is.Equal(a.AnswerCut, i == 4)
			b.is.Equal(string(a.Headers), "X-Odd: \xff\n")
			b.is.Equal(*a.Status, status)
			b.is.Equal(a.Outcome, "odd\uFFFD\uFFFD")
			if status == 500 {
				b.is.Equal(a.Error, "dial \uFFFD \uFFFD")
			}
		}
	}
}

func TestEvidenceComesBackAsItWas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	id := delivery.ID(b.enqueue("a")[0].Seq)
	evidence := delivery.AttemptEvidence{
		Started: time.Now(), Duration: 1500 * time.Millisecond, Outcome: "timeout",
		DNS: 11 * time.Microsecond, Connect: 22 * time.Microsecond, TLS: 33 * time.Microsecond, FirstByte: 44 * time.Microsecond,
		Error: "no answer",
	}
	b.settleAs(func(r *delivery.Result) { r.Verdict, r.Attempt = delivery.Failed, evidence }, b.claim(1)...)
	attempts, err := b.store.Attempts(b.ctx, sub, id)
	b.is.NoErr(err)
	b.is.Equal(len(attempts), 1)
	a := attempts[0]
	b.is.Equal(a.Status, nil) // no answer is not status 0
	b.is.Equal(*a.Duration, evidence.Duration)
	b.is.Equal([]time.Duration{a.DNS, a.Connect, a.TLS, a.FirstByte}, []time.Duration{evidence.DNS, evidence.Connect, evidence.TLS, evidence.FirstByte})
	b.is.Equal(a.Error, "no answer")
	b.is.Equal(a.Claimant, "test")
	b.is.True(a.Started.Sub(evidence.Started).Abs() < 5*time.Second)
}

// What the caller writes and what it says of its claims commit together.
func TestSettlingInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	b.enqueue("a", "a")
	claims := b.claim(1)
	b.exec("CREATE TABLE public.work (n int)")
	settle := func(end error) error {
		return pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(b.ctx, "INSERT INTO public.work VALUES (1)"); err != nil {
				return err
			}
			s, err := b.store.SettleTx(b.ctx, tx, []delivery.Result{{Claim: &claims[0], Verdict: delivery.Succeeded}})
			if err != nil {
				return err
			}
			return errors.Join(s[0].Err(), end)
		})
	}
	before := b.state()
	undo := errors.New("undo")
	b.is.True(errors.Is(settle(undo), undo))
	b.unchanged(before)
	b.is.NoErr(settle(nil))
	b.is.Equal(b.counts(sub), "pending:1 delivered:1 ")
	b.is.Equal(len(b.claim(1)), 1) // its stream goes on
	b.is.True(errors.Is(settle(nil), delivery.ErrLeaseLost))
	b.is.Equal(one[int](b, "SELECT count(*) FROM public.work"), 1)
}

func TestSettlingNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s, err := b.store.Settle(b.ctx, nil)
	b.is.NoErr(err)
	b.is.Equal(len(s), 0)
	lost, err := b.store.Renew(b.ctx, nil, time.Minute)
	b.is.NoErr(err)
	b.is.Equal(len(lost), 0)
	n, err := b.store.Release(b.ctx, nil)
	b.is.NoErr(err)
	b.is.Equal(n, 0)
}

// Batches that forgive one subscription and charge another cross each other.
func TestBatchesThatForgiveAndChargeDoNotDeadlock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	never := func(s *delivery.Settings) { s.DisableAfter = delivery.Never }
	subs := []delivery.SubscriptionID{b.subscribe(onlyAttempt, never), b.subscribe(onlyAttempt, never)}
	for round := range 25 {
		b.exec("UPDATE postlane.subscriptions SET failure_count = 5")
		b.enqueue(fmt.Sprint("a", round), fmt.Sprint("b", round))
		claims := b.claim(100)
		b.is.Equal(len(claims), 4)
		batch := func(asset string, first delivery.SubscriptionID) []delivery.Result {
			var results []delivery.Result
			for i := range claims {
				if c := &claims[i]; c.Asset == fmt.Sprint(asset, round) {
					v := delivery.Failed
					if c.Subscription == first {
						v = delivery.Succeeded
					}
					results = append(results, delivery.Result{Claim: c, Verdict: v})
				}
			}
			return results
		}
		batches := [][]delivery.Result{batch("a", subs[0]), batch("b", subs[1])}
		b.is.NoErr(together(2, func(i int) error {
			_, err := b.store.Settle(b.ctx, batches[i])
			return err
		}))
	}
}
