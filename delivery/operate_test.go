package delivery_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery"
)

func (b *bundle) entry(sub delivery.SubscriptionID, id delivery.ID) delivery.Delivery {
	b.t.Helper()
	d, err := b.store.Delivery(b.ctx, sub, id)
	b.is.NoErr(err)
	return d
}

func ids(enqueued []delivery.Enqueued) []delivery.ID {
	list := make([]delivery.ID, len(enqueued))
	for i, e := range enqueued {
		list[i] = delivery.ID(e.Seq)
	}
	return list
}

func hold(s *delivery.Settings) {
	s.MaxAttempts, s.OnDead, s.DisableAfter = 1, delivery.Hold, delivery.Never
}

// A dead letter that holds its stream does so until an operator acts, whatever happens
// around it, and each way of acting lets it go on.
func TestADeadLetterHoldsItsStream(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(b *bundle, sub delivery.SubscriptionID, id delivery.ID) error{
		"revive": func(b *bundle, sub delivery.SubscriptionID, id delivery.ID) error {
			return b.store.Revive(b.ctx, sub, id)
		},
		"discard": func(b *bundle, sub delivery.SubscriptionID, id delivery.ID) error {
			return b.store.Discard(b.ctx, sub, id, "not worth it")
		},
		"release": func(b *bundle, sub delivery.SubscriptionID, id delivery.ID) error {
			return b.store.ReleaseHeld(b.ctx, sub, id)
		},
	} {
		for _, asset := range []string{"k", ""} {
			t.Run(name+" "+asset, func(t *testing.T) {
				t.Parallel()
				b, c := setupClock(t)
				sub := b.subscribe(hold)
				first := ids(b.enqueue(asset, asset, "other"))
				claims := b.claim(10)
				b.is.Equal(b.settle(delivery.Failed, of(claims, asset)), []delivery.Settled{"held"})
				b.is.Equal(b.settle(delivery.Succeeded, of(claims, "other")), []delivery.Settled{"delivered"})

				d := b.entry(sub, first[0])
				b.is.Equal(d.State, delivery.Dead)
				b.is.True(d.Held)
				b.is.Equal(d.Reason, "attempts used up: http_status")
				later := ids(b.enqueue(asset)) // comes to the end of it
				c.advance(24 * time.Hour)
				for range 2 {
					_, _, err := b.store.Ripen(b.ctx, 100)
					b.is.NoErr(err)
					_, err = b.store.Park(b.ctx, 100)
					b.is.NoErr(err)
					_, err = b.store.Reclaim(b.ctx, 100)
					b.is.NoErr(err)
					woken, err := b.store.WakeOrphans(b.ctx)
					b.is.NoErr(err)
					b.is.Equal(woken, int64(0))
					b.is.Equal(len(b.claim(10)), 0)
					_, err = b.store.Enable(b.ctx, sub)
					b.is.NoErr(err)
				}

				b.is.NoErr(act(b, sub, first[0]))
				d = b.entry(sub, first[0])
				b.is.True(!d.Held)
				var got []delivery.ID
				for range 3 {
					claims := b.claim(10)
					if len(claims) == 0 {
						break
					}
					b.is.Equal(len(claims), 1)
					b.is.Equal(claims[0].Attempt, 1)
					got = append(got, claims[0].ID())
					b.settle(delivery.Succeeded, claims...)
				}
				switch name {
				case "revive":
					b.is.Equal(got, []delivery.ID{first[0], first[1], later[0]})
				case "discard":
					b.is.Equal(got, []delivery.ID{first[1], later[0]})
					d := b.entry(sub, first[0])
					b.is.Equal(d.State, delivery.Discarded)
					b.is.Equal(d.Reason, "not worth it")
				case "release":
					b.is.Equal(got, []delivery.ID{first[1], later[0]})
					d := b.entry(sub, first[0])
					b.is.Equal(d.State, delivery.Dead)
					b.is.Equal(d.Reason, "attempts used up: http_status")
					b.is.NoErr(b.store.Revive(b.ctx, sub, first[0])) // still possible
					b.is.Equal(b.claim(1)[0].ID(), first[0])
				}
			})
		}
	}
}

func TestRevivingResetsTheAttemptsAndTakesItsPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(onlyAttempt)
	three := ids(b.enqueue("k", "k", "k"))
	for range 2 { // the first two die
		b.is.Equal(b.settle(delivery.Failed, b.claim(10)...), []delivery.Settled{"dead"})
	}
	flying := b.claim(10) // the third is in flight
	b.is.Equal(flying[0].ID(), three[2])
	b.is.NoErr(b.store.Revive(b.ctx, sub, three[1]))
	b.is.NoErr(b.store.Revive(b.ctx, sub, three[0])) // in whichever order
	d := b.entry(sub, three[0])
	b.is.Equal(d.State, delivery.Pending)
	b.is.Equal(d.Attempts, 0)
	b.is.Equal(d.Reason, "")
	b.is.Equal(len(b.claim(10)), 0) // one in flight
	b.is.Equal(b.settle(delivery.Released, flying...), []delivery.Settled{"released"})
	var got []delivery.ID
	for range 3 {
		claims := b.claim(10)
		b.is.Equal(len(claims), 1)
		b.is.Equal(claims[0].Attempt, 1)
		got = append(got, claims[0].ID())
		_, err := b.store.Park(b.ctx, 100)
		b.is.NoErr(err)
		b.settle(delivery.Succeeded, claims...)
	}
	b.is.Equal(got, three)
	attempts, err := b.store.Attempts(b.ctx, sub, three[0])
	b.is.NoErr(err)
	b.is.Equal(len(attempts), 2) // what was before is kept
	b.is.Equal([]int{attempts[0].Number, attempts[1].Number}, []int{1, 1})
	b.is.True(attempts[0].Fence < attempts[1].Fence)
	b.is.Equal(b.counts(sub), "delivered:3 ")
}

// A revived letter stands before one in flight that fails, stalls, or is parked.
func TestARevivedLetterBeforeOneInFlight(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"fails", "stalls", "is parked and released", "dies", "is postponed"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			b, c := setupClock(t)
			sub := b.subscribe(func(s *delivery.Settings) { s.MaxAttempts = 2 })
			two := ids(b.enqueue("k", "k"))
			for range 2 {
				b.settle(delivery.Failed, b.claim(1)...)
				c.advance(time.Hour)
				_, _, err := b.store.Ripen(b.ctx, 10)
				b.is.NoErr(err)
			}
			flying := b.claim(1)
			b.is.Equal(flying[0].ID(), two[1])
			b.is.NoErr(b.store.Revive(b.ctx, sub, two[0]))
			switch end {
			case "fails":
				b.settle(delivery.Failed, flying...)
			case "stalls":
				c.advance(time.Hour)
				_, err := b.store.Reclaim(b.ctx, 10)
				b.is.NoErr(err)
			case "is parked and released":
				parked, err := b.store.Park(b.ctx, 100)
				b.is.NoErr(err)
				b.is.Equal(parked, int64(1))
				b.settle(delivery.Released, flying...)
			case "dies":
				b.settleAs(func(r *delivery.Result) { r.Verdict, r.Gone = delivery.Failed, true }, flying...)
				_, err := b.store.Enable(b.ctx, sub)
				b.is.NoErr(err)
			case "is postponed":
				b.settle(delivery.Postponed, flying...)
			}
			var got []delivery.ID
			for range 2 {
				claims := b.claim(10)
				for _, x := range claims {
					got = append(got, x.ID())
				}
				b.settle(delivery.Succeeded, claims...)
				c.advance(time.Hour)
				_, _, err := b.store.Ripen(b.ctx, 10)
				b.is.NoErr(err)
				_, err = b.store.Park(b.ctx, 100)
				b.is.NoErr(err)
			}
			if end == "dies" {
				b.is.Equal(got, two[:1])
			} else {
				b.is.Equal(got, two)
			}
		})
	}
}

func TestBC51_OnlyADeadLetterIsRevived(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(onlyAttempt)
	other := b.subscribe(func(s *delivery.Settings) { s.EventTypes = []string{"never"} })
	id := ids(b.enqueue("pending", "pending", "flying", "delivered", "discarded", "dead"))
	claims := b.claim(10)
	b.settle(delivery.Released, of(claims, "pending"))
	b.settle(delivery.Succeeded, of(claims, "delivered"))
	b.settle(delivery.Released, of(claims, "discarded"))
	b.is.NoErr(b.store.Discard(b.ctx, sub, id[4], "no"))
	b.settle(delivery.Failed, of(claims, "dead"))

	states := map[delivery.ID]delivery.DeliveryState{
		id[0]: delivery.Pending, id[1]: delivery.Pending, id[2]: delivery.Delivering, id[3]: delivery.Delivered, id[4]: delivery.Discarded,
	}
	before := b.state()
	for id, state := range states {
		b.is.Equal(b.entry(sub, id).State, state)
		b.is.True(errors.Is(b.store.Revive(b.ctx, sub, id), delivery.ErrNotDead))
		b.is.True(errors.Is(b.store.ReleaseHeld(b.ctx, sub, id), delivery.ErrNotHeld))
	}
	b.is.True(errors.Is(b.store.ReleaseHeld(b.ctx, sub, id[5]), delivery.ErrNotHeld)) // dead, and holding nothing
	b.is.True(errors.Is(b.store.Discard(b.ctx, sub, id[2], "x"), delivery.ErrInFlight))
	b.is.True(errors.Is(b.store.Discard(b.ctx, sub, id[3], "x"), delivery.ErrNotDead))
	b.is.True(errors.Is(b.store.Discard(b.ctx, sub, id[4], "x"), delivery.ErrNotDead))
	b.is.True(errors.Is(b.store.Discard(b.ctx, sub, id[5], ""), delivery.ErrInvalid))
	for _, missing := range []delivery.ID{0, -1, 999_999} {
		b.is.True(errors.Is(b.store.Revive(b.ctx, sub, missing), delivery.ErrNotFound))
		b.is.True(errors.Is(b.store.Discard(b.ctx, sub, missing, "x"), delivery.ErrNotFound))
		b.is.True(errors.Is(b.store.ReleaseHeld(b.ctx, sub, missing), delivery.ErrNotFound))
	}
	b.is.True(errors.Is(b.store.Revive(b.ctx, other, id[5]), delivery.ErrNotFound)) // another's
	b.is.True(errors.Is(b.store.Revive(b.ctx, 12345, id[5]), delivery.ErrNotFound))
	b.unchanged(before)

	// A double click: one of the two is told that it is not dead any more.
	for range 10 {
		var mu sync.Mutex
		var errs []error
		b.is.NoErr(together(4, func(int) error {
			err := b.store.Revive(b.ctx, sub, id[5])
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			return nil
		}))
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else if !errors.Is(err, delivery.ErrNotDead) {
				t.Fatal(err)
			}
		}
		b.is.Equal(won, 1)
		again := of(b.claim(10), "dead")
		b.is.Equal(again.ID(), id[5])
		b.is.Equal(again.Attempt, 1)
		b.settle(delivery.Failed, again)
	}
}

// The same where the letter holds its stream, which is another row.
func TestBC51_AHeldLetterIsRevivedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(hold)
	id := ids(b.enqueue("k"))[0]
	for range 10 {
		b.is.Equal(b.settle(delivery.Failed, b.claim(1)...), []delivery.Settled{"held"})
		var mu sync.Mutex
		won := 0
		b.is.NoErr(together(4, func(int) error {
			err := b.store.Revive(b.ctx, sub, id)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, delivery.ErrNotDead) {
				return err
			}
			return nil
		}))
		b.is.Equal(won, 1)
	}
}

func TestDiscardingWhatStandsInTheWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	three := ids(b.enqueue("k", "k", "k"))
	b.settleAs(func(r *delivery.Result) { r.Verdict, r.Delay = delivery.Failed, time.Hour }, b.claim(1)...)
	b.is.Equal(len(b.claim(10)), 0)                                 // waits for its next attempt
	b.is.NoErr(b.store.Discard(b.ctx, sub, three[1], "in between")) // its turn has not come
	b.is.Equal(len(b.claim(10)), 0)
	b.is.NoErr(b.store.Discard(b.ctx, sub, three[0], "poison"))
	claims := b.claim(10)
	b.is.Equal(len(claims), 1)
	b.is.Equal(claims[0].ID(), three[2])
	b.is.Equal(claims[0].Prev, int64(three[1]))
	d := b.entry(sub, three[0])
	b.is.Equal(d.State, delivery.Discarded)
	b.is.Equal(d.Reason, "poison")
	b.is.Equal(d.Attempts, 1)
}

func TestAHoldThatIsTakenBackForTheFuture(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(hold)
	b.enqueue("k", "k", "k")
	b.settle(delivery.Failed, b.claim(1)...)
	_, err := b.store.UpdateSubscription(b.ctx, sub, func(s *delivery.Settings) error { s.OnDead = delivery.Continue; return nil })
	b.is.NoErr(err)
	b.is.Equal(len(b.claim(10)), 0) // what holds, holds until somebody acts
	held := b.list(sub, delivery.Filter{States: []delivery.DeliveryState{delivery.Dead}})
	b.is.NoErr(b.store.ReleaseHeld(b.ctx, sub, held[0].ID))
	b.is.Equal(b.settle(delivery.Failed, b.claim(1)...), []delivery.Settled{"dead"})
	b.is.Equal(len(b.claim(10)), 1)
}

func TestBC28_PausingKeepsWhatIsPendingInOrder(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"pause", "disable"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b, c := setupClock(t)
			sub := b.subscribe(func(s *delivery.Settings) { s.DisableAfter = 1 })
			id := ids(b.enqueue("a", "a", "a", "b", "b", "c", "c", "c", "", "d"))
			claims := b.claim(10)
			for _, asset := range []string{"a", "b", "c"} { // three wait for a retry
				b.settleAs(func(r *delivery.Result) { r.Verdict, r.Delay = delivery.Failed, time.Minute }, of(claims, asset))
			}
			b.settle(delivery.Released, of(claims, ""), of(claims, "d"))
			if how == "pause" {
				s, err := b.store.Pause(b.ctx, sub, "moving house")
				b.is.NoErr(err)
				b.is.Equal(s.State, delivery.Paused)
				b.is.Equal(s.Reason, "moving house")
			} else {
				b.exec("UPDATE postlane.subscriptions SET state = 'disabled', state_reason = 'x'")
			}
			for range 5 {
				c.advance(time.Minute)
				_, _, err := b.store.Ripen(b.ctx, 100)
				b.is.NoErr(err)
				_, err = b.store.Park(b.ctx, 100)
				b.is.NoErr(err)
				b.is.Equal(len(b.claim(10)), 0)
			}
			b.is.Equal(b.counts(sub), "pending:10 ")
			id = append(id, ids(b.enqueue("a"))...) // what happens meanwhile is kept too
			_, err := b.store.Enable(b.ctx, sub)
			b.is.NoErr(err)
			got := map[string][]delivery.ID{}
			for range 4 {
				claims := b.claim(100)
				for _, x := range claims {
					got[x.Asset] = append(got[x.Asset], x.ID())
				}
				b.settle(delivery.Succeeded, claims...)
			}
			b.is.Equal(got, map[string][]delivery.ID{
				"a": {id[0], id[1], id[2], id[10]}, "b": {id[3], id[4]}, "c": {id[5], id[6], id[7]}, "": {id[8]}, "d": {id[9]},
			})
		})
	}
}

func TestBC52_DeletingWithPendingAndInFlight(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	sub := b.subscribe(hold)
	other := b.subscribe()
	b.enqueue("a", "a", "b", "c", "d", "e", "f", "held")
	claims := b.claim(100)
	mine := func(asset string) delivery.Claim {
		i := slices.IndexFunc(claims, func(x delivery.Claim) bool { return x.Subscription == sub && x.Asset == asset })
		return claims[i]
	}
	b.settle(delivery.Failed, mine("held"))
	b.settle(delivery.Released, mine("d"))

	// It waits for claims that may not have begun to send: they are old by now.
	c.advance(0)
	b.exec("UPDATE postlane.leases SET claimed_at = clock_timestamp() - interval '1 minute'")
	b.is.NoErr(b.store.DeleteSubscription(b.ctx, sub))
	_, err := b.store.Subscription(b.ctx, sub)
	b.is.True(errors.Is(err, delivery.ErrNotFound))
	b.is.True(errors.Is(b.store.DeleteSubscription(b.ctx, sub), delivery.ErrNotFound))
	for _, x := range b.claim(100) {
		b.is.Equal(x.Subscription, other) // no request starts afterwards
	}
	b.enqueue("late")
	discarded, err := b.store.DiscardDeleted(b.ctx, 100)
	b.is.NoErr(err)
	b.is.Equal(discarded, int64(2)) // d and the held one; the streams in flight are left to their settling
	b.is.Equal(b.counts(sub), "pending:1 delivering:5 discarded:2 ")

	// Every result in flight is handled.
	b.is.Equal(b.settle(delivery.Succeeded, mine("a")), []delivery.Settled{"delivered"})
	b.is.Equal(b.settle(delivery.Failed, mine("b")), []delivery.Settled{"discarded"})
	b.is.Equal(b.settle(delivery.Released, mine("c")), []delivery.Settled{"released"})
	b.is.Equal(b.settleAs(func(r *delivery.Result) { r.Verdict, r.Gone = delivery.Failed, true }, mine("e")), []delivery.Settled{"discarded"})
	c.advance(time.Hour)
	reclaimed, err := b.store.Reclaim(b.ctx, 100)
	b.is.NoErr(err)
	n := slices.IndexFunc(reclaimed, func(r delivery.Reclaimed) bool { return r.Subscription == sub })
	b.is.Equal(reclaimed[n].State, delivery.SettledDiscarded)
	for _, want := range []int64{1, 1, 0} { // a's second and c, one at a time
		discarded, err = b.store.DiscardDeleted(b.ctx, 1)
		b.is.NoErr(err)
		b.is.Equal(discarded, want)
	}
	b.is.Equal(b.counts(sub), "delivered:1 discarded:7 ")
	for _, x := range b.claim(100) {
		b.is.Equal(x.Subscription, other)
	}
	// The history stays, and is nobody's to act on.
	list := b.list(sub, delivery.Filter{})
	b.is.Equal(len(list), 8)
	for _, d := range list {
		if d.State == delivery.Discarded {
			b.is.Equal(d.Reason, "subscription deleted")
		}
		b.is.True(errors.Is(b.store.Revive(b.ctx, sub, d.ID), delivery.ErrNotFound))
	}
}

// An operator's action and the claim meet at the same delivery.
func TestDiscardAgainstClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	for round := range 20 {
		id := ids(b.enqueue("k"))[0]
		var claims []delivery.Claim
		var refused error
		b.is.NoErr(together(2, func(i int) (err error) {
			if i == 0 {
				claims, err = b.store.Claim(b.ctx, request(10))
				return err
			}
			refused = b.store.Discard(b.ctx, sub, id, fmt.Sprint("round ", round))
			return nil
		}))
		if len(claims) == 1 {
			b.is.True(errors.Is(refused, delivery.ErrInFlight))
			b.is.Equal(b.settle(delivery.Succeeded, claims...), []delivery.Settled{"delivered"})
		} else {
			b.is.NoErr(refused)
			b.is.Equal(b.entry(sub, id).State, delivery.Discarded)
		}
	}
}
