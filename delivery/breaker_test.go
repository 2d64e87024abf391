package delivery_test

import (
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/receiver"
)

// refuse settles claims as an endpoint does that is not there, or that asks to be left
// alone, and returns whether that opened a breaker.
func (b *bundle) refuse(asked time.Duration, claims ...delivery.Claim) (opened bool) {
	b.t.Helper()
	results := make([]delivery.Result, len(claims))
	for i := range claims {
		results[i] = delivery.Result{
			Claim: &claims[i], Verdict: delivery.Failed, Unavailable: true, Asked: asked, Delay: time.Hour,
			Attempt: delivery.AttemptEvidence{Outcome: "connection_refused"},
		}
	}
	settlements, err := b.store.Settle(b.ctx, results)
	b.is.NoErr(err)
	for i, s := range settlements {
		b.is.Equal(s.State, delivery.SettledPending)
		opened = opened || settlements[i].Opened
	}
	return opened
}

// broken is a subscription whose breaker is open since now, with n deliveries that wait.
func (b *bundle) broken(n int) delivery.SubscriptionID {
	b.t.Helper()
	sub := b.subscribe()
	b.enqueue(names("k", n+10)...)
	b.is.True(b.refuse(0, b.claim(10)...))
	return sub
}

func TestABreakerLetsOneProbeThrough(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	sub := b.broken(50)
	stores := []*delivery.Store{b.store}
	for range 3 {
		stores = append(stores, setupOn(t, b.pool, delivery.StoreConfig{Now: c.now}).store)
	}
	claim := func() (claims []delivery.Claim) {
		var all sync.WaitGroup
		var mu sync.Mutex
		for _, s := range stores {
			all.Go(func() {
				got, err := s.Claim(b.ctx, request(20))
				mu.Lock()
				defer mu.Unlock()
				b.is.NoErr(err)
				claims = append(claims, got...)
			})
		}
		all.Wait()
		return claims
	}
	for _, seconds := range []int{5, 10, 20, 40, 60, 60} {
		b.is.Equal(len(claim()), 0)
		c.advance(time.Duration(seconds)*time.Second - time.Millisecond)
		b.is.Equal(len(claim()), 0)
		c.advance(time.Millisecond)
		probe := claim()
		b.is.Equal(len(probe), 1)
		b.is.Equal(len(claim()), 0)
		b.is.True(!b.refuse(0, probe...))
	}
	s := b.subscription(sub)
	b.is.Equal(s.Breaker.Failures, 16)
	b.is.True(s.Breaker.NextProbe.Equal(c.now().Add(time.Minute)))
	b.is.Equal(one[int](b, "SELECT count(*) FROM postlane.deliveries WHERE attempts = 0"), 44) // what waits is charged nothing
	open, longest, err := b.store.OpenBreakers(b.ctx)
	b.is.NoErr(err)
	b.is.Equal(open, int64(1))
	b.is.Equal(longest, 195*time.Second)

	c.advance(time.Minute)
	b.settle(delivery.Succeeded, claim()...)
	b.is.Equal(b.subscription(sub).Breaker, nil)
	open, longest, err = b.store.OpenBreakers(b.ctx)
	b.is.NoErr(err)
	b.is.True(open == 0 && longest == 0)
	b.is.Equal(len(b.claim(100)), 43)
	b.is.Equal(one[int](b, "SELECT count(*) FROM postlane.breakers"), 0)
}

// Nothing is sent to a subscription that is paused, and nobody has to look at its endpoint.
func TestBreakersOfPausedSubscriptionsDoNotCount(t *testing.T) {
	t.Parallel()
	b, _ := setupClock(t)
	sub := b.broken(1)
	count := func() int64 {
		open, _, err := b.store.OpenBreakers(b.ctx)
		b.is.NoErr(err)
		return open
	}
	active := func() int64 {
		n, err := b.store.ActiveSubscriptions(b.ctx)
		b.is.NoErr(err)
		return n
	}
	b.subscribe()
	b.is.NoErr(b.store.DeleteSubscription(b.ctx, b.subscribe()))
	b.is.Equal([]int64{count(), active()}, []int64{1, 2})
	_, err := b.store.Pause(b.ctx, sub, "x")
	b.is.NoErr(err)
	b.is.Equal([]int64{count(), active()}, []int64{0, 1})
}

func TestAProbeThatNothingComesOfIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	b.broken(5)
	c.advance(5 * time.Second)
	b.is.Equal(len(b.claim(10)), 1) // and its claimant crashes
	c.advance(time.Minute - time.Millisecond)
	b.is.Equal(len(b.claim(10)), 0)
	c.advance(time.Millisecond) // its lease
	b.is.Equal(len(b.claim(10)), 1)
}

func TestOnlyFailuresInARowOpenABreaker(t *testing.T) {
	t.Parallel()
	b, _ := setupClock(t)
	sub := b.subscribe()
	b.enqueue(names("k", 60)...)
	for range 3 {
		b.is.True(!b.refuse(0, b.claim(9)...))
		b.settle(delivery.Succeeded, b.claim(1)...)
	}
	b.settle(delivery.Failed, b.claim(15)...) // 500 is an answer
	b.is.Equal(b.subscription(sub).Breaker, nil)
}

// Many requests are open when an endpoint goes away. Each is charged, and none is a probe.
func TestWhatWasOpenWhenABreakerOpenedIsNoProbe(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	b.subscribe()
	b.enqueue(names("k", 50)...)
	early := b.claim(40)
	c.advance(time.Second)
	b.is.True(b.refuse(0, early[:10]...))
	b.is.True(!b.refuse(0, early[10:20]...))
	b.is.True(!b.refuse(0, early[20:30]...))
	c.advance(5 * time.Second)
	b.is.Equal(len(b.claim(10)), 1)
	b.settle(delivery.Succeeded, early[30]) // it is back
	b.is.Equal(len(b.claim(10)), 9)
}

func TestAnEndpointMayAskToBeLeftAlone(t *testing.T) {
	t.Parallel()
	for asked, waits := range map[time.Duration]time.Duration{2 * time.Second: 2 * time.Second, 24 * time.Hour: 10 * time.Minute} {
		b, c := setupClock(t)
		b.subscribe()
		b.enqueue(names("k", 5)...)
		b.is.True(b.refuse(asked, b.claim(1)...)) // the first that says so
		c.advance(waits - time.Millisecond)
		b.is.Equal(len(b.claim(10)), 0)
		c.advance(time.Millisecond)
		b.is.Equal(len(b.claim(10)), 1)
	}
}

func TestAnOperatorClosesABreaker(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*bundle, delivery.SubscriptionID) error{
		"enabled": func(b *bundle, id delivery.SubscriptionID) error { _, err := b.store.Enable(b.ctx, id); return err },
		"moved": func(b *bundle, id delivery.SubscriptionID) error {
			_, err := b.store.UpdateSubscription(b.ctx, id, func(s *delivery.Settings) error { s.URL += "/new"; return nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := setupClock(t)
			sub := b.broken(5)
			b.is.Equal(len(b.claim(10)), 0)
			b.is.NoErr(act(b, sub))
			b.is.Equal(len(b.claim(10)), 5)
		})
	}
}

// With a thousand streams, probes use up the attempts of the few deliveries that were
// tried, and not one attempt of each: a dead endpoint is disabled as its schedule has it.
func TestADeadEndpointIsDisabledWhateverWaits(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	sub := b.subscribe(func(s *delivery.Settings) { s.MaxAttempts, s.DisableAfter = 3, 5 })
	b.enqueue(names("k", 1000)...)
	probes := 0
	for b.subscription(sub).State == delivery.Active && probes < 200 {
		_, _, err := b.store.Ripen(b.ctx, 1000)
		b.is.NoErr(err)
		claims := b.claim(10)
		probes += len(claims)
		results := make([]delivery.Result, len(claims))
		for i := range claims {
			results[i] = delivery.Result{Claim: &claims[i], Verdict: delivery.Failed, Unavailable: true, Delay: time.Minute}
		}
		_, err = b.store.Settle(b.ctx, results)
		b.is.NoErr(err)
		c.advance(time.Minute)
	}
	b.is.Equal(b.subscription(sub).State, delivery.Disabled)
	b.is.True(probes < 60)
	b.is.True(one[int](b, "SELECT count(*) FROM postlane.deliveries WHERE attempts = 0") > 900)
}

func TestBreakersOfManySubscriptionsDoNotMeetInACircle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 8 {
		b.subscribe(func(s *delivery.Settings) { s.MaxAttempts = 1000 })
	}
	b.enqueue(names("k", 40)...)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 25 {
				claims, err := b.store.Claim(b.ctx, request(30))
				b.is.NoErr(err)
				results := make([]delivery.Result, len(claims))
				for k := range claims {
					results[k] = delivery.Result{Claim: &claims[k], Verdict: delivery.Succeeded}
					if (i+j+k)%3 > 0 {
						results[k] = delivery.Result{Claim: &claims[k], Verdict: delivery.Failed, Unavailable: true, Asked: time.Millisecond}
					}
				}
				_, err = b.store.Settle(b.ctx, results)
				b.is.NoErr(err)
				_, _, err = b.store.Ripen(b.ctx, 1000)
				b.is.NoErr(err)
			}
		})
	}
	all.Wait()
}

// While an endpoint is away, a dispatcher sends it what was under way and then probes, a
// neighbour gets all of its own, and all arrives in order when the endpoint is back.
func TestADeadEndpointCostsAProbeAndNotAQueue(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := &clock{at: began}
	now := func() time.Time { return c.now().Add(time.Since(began)) }
	s := siteOf(setupOn(t, pgtest.New(t), delivery.StoreConfig{Now: now}))
	away := s.endpoint("/away", func(set *delivery.Settings) { set.EventTypes = []string{"slow"} })
	s.endpoint("/healthy", func(set *delivery.Settings) { set.EventTypes = []string{"thing.*"} })
	s.behave("/away", receiver.Behaviour{Status: 503})
	opened := make(chan delivery.SubscriptionID, 10)
	closed := make(chan delivery.SubscriptionID, 10)
	config := s.config()
	config.Reclaim = 10 * time.Millisecond
	config.Observer.Opened = func(id delivery.SubscriptionID) { opened <- id }
	config.Observer.Closed = func(id delivery.SubscriptionID, _ time.Duration) { closed <- id }
	flood := make([]delivery.Event, 600)
	for i, asset := range append(names("k", 300), names("k", 300)...) {
		flood[i] = delivery.Event{Tenant: tenant, Type: "slow", Asset: asset, Payload: []byte("{}")}
	}
	s.enqueueEvents(flood...)
	_, stop := s.dispatch(config)
	s.is.Equal(await(t, opened), away)
	s.enqueue(names("h", 100)...)
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 100))
	s.is.True(s.receiver.VerdictOf("/away").Requests <= 30)

	s.behave("/away", receiver.Behaviour{})
	c.advance(5 * time.Second)
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 700))
	s.is.Equal(await(t, closed), away)
	s.is.NoErr(stop())
	s.is.Equal(len(opened)+len(closed), 0) // each was told once
	s.is.Equal(one[int](s.bundle, "SELECT count(*) FROM postlane.settled WHERE state <> 'delivered'"), 0)
	s.sound()
}

func TestWhatFindsNoEndpoint(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for outcome, want := range map[sender.Outcome]bool{
		sender.Timeout: true, sender.ConnectionRefused: true, sender.DNSNotFound: true,
		sender.DNSFailure: false, sender.LocalFailure: false, sender.Blocked: false, sender.TLSExpired: false, sender.Delivered: false,
	} {
		is.Equal(delivery.Unavailable(&sender.Result{Outcome: outcome}), want)
	}
	for status, want := range map[int]bool{429: true, 502: true, 503: true, 504: true, 500: false, 404: false, 410: false} {
		is.Equal(delivery.Unavailable(&sender.Result{Outcome: sender.HTTPStatus, Status: status, Answered: true}), want)
	}
}

// Nobody waits for the endpoint of a deleted subscription, also where a request fails that
// was open.
func TestADeletedSubscriptionHasNoBreaker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	open := func() int64 {
		n, _, err := b.store.OpenBreakers(b.ctx)
		b.is.NoErr(err)
		return n
	}
	sub := b.subscribe()
	b.enqueue(names("k", 12)...)
	last := b.claim(1)
	b.is.True(b.refuse(0, b.claim(10)...))
	b.is.Equal(open(), int64(1))
	b.exec("UPDATE postlane.leases SET claimed_at = claimed_at - interval '1 minute'") // for the deletion not to wait
	b.is.NoErr(b.store.DeleteSubscription(b.ctx, sub))
	b.is.Equal(open(), int64(0))
	settled := b.settleAs(func(r *delivery.Result) { r.Verdict, r.Unavailable, r.Asked = delivery.Failed, true, time.Minute }, last...)
	b.is.Equal(settled, []delivery.Settled{delivery.SettledDiscarded})
	b.is.Equal(open(), int64(0))
}
