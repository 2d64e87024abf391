package delivery_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// rate is a change of settings.
func rate(text string) func(*delivery.Settings) {
	return func(s *delivery.Settings) {
		r, err := delivery.ParseRate(text)
		if err != nil {
			panic(err)
		}
		s.RateLimit = r
	}
}

// waiting is a request that waits for places in time as a dispatcher's does.
func waiting(n int, wait time.Duration) delivery.ClaimRequest {
	r := request(n)
	r.Wait = wait
	return r
}

// However many claim at once, and whenever, the places in time of a limited subscription
// are an interval apart, and none is left out while there is something to send.
func TestARateLimitIsExactAcrossClaimants(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	const interval = 20 * time.Millisecond
	sub := b.subscribe(rate("50/s"))
	b.enqueue(names("k", 400)...)
	stores := []*delivery.Store{b.store}
	for range 3 {
		stores = append(stores, setupOn(t, b.pool, delivery.StoreConfig{Now: c.now}).store)
	}
	seed := rand.Uint64()
	draw := rand.New(rand.NewPCG(seed, 0))
	var places []time.Time
	for len(places) < 400 {
		claimed := make([][]delivery.Claim, len(stores)+1)
		errs := make([]error, len(stores)+1)
		var all sync.WaitGroup
		for i, s := range stores {
			n := 1 + draw.IntN(60)
			all.Go(func() { claimed[i], errs[i] = s.Claim(b.ctx, waiting(n, time.Second)) })
		}
		all.Wait()
		claimed[len(stores)], errs[len(stores)] = b.store.Claim(b.ctx, waiting(60, time.Second)) // what those left that met each other
		for i := range claimed {
			b.is.NoErr(errs[i])
			for _, x := range claimed[i] {
				b.is.Equal(x.Subscription, sub)
				b.is.True(x.Wait <= time.Second)
				places = append(places, c.now().Add(x.Wait))
			}
			// A retry is a request like any other.
			b.settle([]delivery.Verdict{delivery.Succeeded, delivery.Failed, delivery.Released}[draw.IntN(3)], claimed[i]...)
		}
		c.advance(time.Duration(draw.IntN(500)) * time.Millisecond)
		_, _, err := b.store.Ripen(b.ctx, 1000)
		b.is.NoErr(err)
	}
	slices.SortFunc(places, time.Time.Compare)
	for i := 1; i < len(places); i++ {
		if gap := places[i].Sub(places[i-1]); gap != interval {
			t.Fatalf("seed %d: request %d is to start %v after the one before it, not %v", seed, i, gap, interval)
		}
	}
}

func TestAPauseDoesNotSaveUpRequests(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	b.subscribe(rate("2/s"))
	b.enqueue(names("k", 10)...)
	b.is.Equal(len(b.claim(10)), 1)
	b.is.Equal(len(b.claim(10)), 0)
	c.advance(499 * time.Millisecond)
	b.is.Equal(len(b.claim(10)), 0)
	c.advance(time.Millisecond)
	b.is.Equal(len(b.claim(10)), 1)
	c.advance(time.Hour)
	b.is.Equal(len(b.claim(10)), 1)
}

func TestALimitChangesAtOnce(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	sub := b.subscribe(rate("1/24h"))
	b.enqueue(names("k", 10)...)
	b.is.Equal(len(b.claim(10)), 1)
	c.advance(time.Hour)
	b.is.Equal(len(b.claim(10)), 0)
	set := func(text string) {
		t.Helper()
		s, err := b.store.UpdateSubscription(b.ctx, sub, func(s *delivery.Settings) error { rate(text)(s); return nil })
		b.is.NoErr(err)
		b.is.Equal(s.RateLimit.String(), text)
	}
	set("1/m") // not tomorrow any more
	b.is.Equal(len(b.claim(10)), 0)
	c.advance(time.Minute)
	b.is.Equal(len(b.claim(10)), 1)
	set("")
	b.is.Equal(len(b.claim(10)), 8)
	b.is.Equal(one[int](b, "SELECT count(*) FROM postlane.paces"), 0)
}

func TestALimitIsOfItsSubscriptionAlone(t *testing.T) {
	t.Parallel()
	b, _ := setupClock(t)
	limited, free := b.subscribe(rate("1/s")), b.subscribe()
	b.enqueue(names("k", 5)...)
	got := map[delivery.SubscriptionID]int{}
	for _, c := range b.claim(100) {
		got[c.Subscription]++
		b.is.Equal(c.Wait, time.Duration(0))
	}
	b.is.Equal(got, map[delivery.SubscriptionID]int{limited: 1, free: 5})
}

func TestNothingIsSentAheadUnderALimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(rate("1/s"))
	b.enqueue("a", "a", "a")
	b.is.Equal(len(b.claimAhead(10).Ahead), 0)
	b.is.Equal(one[int](b, "SELECT ahead FROM postlane.leases"), 0)
}

// A backlog that waits for its limit is not looked through by every Park, and its blocked
// rows are out of the way when its time comes.
func TestParkingWaitsForTheLimit(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	b.subscribe(rate("1/s"))
	for range 3 {
		b.enqueue("a")
	}
	b.is.Equal(len(b.claim(1)), 1)
	park := func() int64 {
		n, err := b.store.Park(b.ctx, 100)
		b.is.NoErr(err)
		return n
	}
	b.is.Equal(park(), int64(0))
	c.advance(time.Second)
	b.is.Equal(park(), int64(2))
}

func TestADispatcherWaitsForEachPlace(t *testing.T) {
	t.Parallel()
	b := setupOn(t, pgtest.New(t), delivery.StoreConfig{})
	b.subscribe(rate("50/s"))
	b.enqueue(names("k", 20)...)
	s := &timedSender{sent: make(chan time.Time, 20)}
	began := time.Now()
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	var all sync.WaitGroup
	for range 2 {
		d, err := delivery.New(delivery.Config{Store: b.store, Sender: s})
		b.is.NoErr(err)
		all.Go(func() { _ = d.Run(ctx) })
	}
	var sent []time.Time
	for range 20 {
		sent = append(sent, <-s.sent)
	}
	stop()
	all.Wait()
	slices.SortFunc(sent, time.Time.Compare)
	for i, at := range sent {
		if early := began.Add(time.Duration(i) * 20 * time.Millisecond).Sub(at); early > 0 {
			t.Errorf("request %d began %v before its place", i, early)
		}
	}
}

// timedSender says when each request began.
type timedSender struct{ sent chan time.Time }

func (s *timedSender) Send(context.Context, sender.Request) sender.Result {
	s.sent <- time.Now()
	return sender.Result{Outcome: sender.Delivered, Status: 200, Answered: true}
}

func (s *timedSender) Timeout() time.Duration { return time.Second }

func TestRates(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for text, want := range map[string]delivery.Rate{
		"": {}, "100/s": {100, time.Second}, "10/m": {10, time.Minute}, "5000/h": {5000, time.Hour}, "3/30s": {3, 30 * time.Second},
	} {
		r, err := delivery.ParseRate(text)
		is.NoErr(err)
		is.Equal(r, want)
		is.Equal(r.String(), text)
	}
	for _, text := range []string{"100", "/s", "x/s", "1/", "0/s", "-1/s", "10001/s", "1/500ms", "1/1500ms", "1/25h", "1/s/s", "0/0s"} {
		if r, err := delivery.ParseRate(text); err == nil {
			t.Errorf("%q is taken as %v", text, r)
		}
	}
	b := setup(t)
	_, _, err := b.store.CreateSubscription(b.ctx, tenant, delivery.Settings{URL: "http://127.0.0.1/", RateLimit: delivery.Rate{Requests: 1}})
	is.True(err != nil)
}

func TestPlansUnderLimits(t *testing.T) {
	t.Parallel()
	b, c, w := setupPlans(t)
	load(b, "uniform", 2000)
	b.exec("UPDATE postlane.subscriptions SET rate_limit = 1, rate_per_s = 1")
	b.exec("INSERT INTO postlane.paces (subscription_id, interval_us, next_at) SELECT i, 1000000, $1 FROM generate_series(1, 5000) i", c.now())
	b.exec("INSERT INTO postlane.paces (subscription_id, interval_us, next_at) SELECT id, 1000000, $1 FROM postlane.subscriptions", c.now())
	seen := w.During(func() {
		b.is.Equal(len(b.claim(100)), planSubscriptions)
		_, err := b.store.Park(b.ctx, 25)
		b.is.NoErr(err)
	})
	cheap(t, "limited", planSubscriptions*200, seen, "DeliveryClaim", "DeliveryPark")
}

// A clock that was ahead, and is set right, does not stop what has a rate limit for as long
// as it was ahead: no place is further away than the interval and what a claim waits for.
func TestARateLimitAfterTheClockWentBack(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	b.subscribe(rate("10/s"))
	b.enqueue(names("k", 4)...)
	c.advance(24 * time.Hour)
	b.settle(delivery.Succeeded, b.claim(1)...)
	c.advance(-24 * time.Hour)
	claims, err := b.store.Claim(b.ctx, waiting(1, time.Second))
	b.is.NoErr(err)
	b.is.Equal(len(claims), 1)
}
