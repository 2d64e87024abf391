package delivery_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/receiver"
)

func TestBC30_AStopWaitsForWhatIsOpenAndClaimsNothing(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	hold := make(chan struct{})
	s.behave("/a", receiver.Behaviour{Hold: hold})
	arrivals, stopArrivals := s.receiver.Arrivals(100)
	defer stopArrivals()
	c := s.config()
	c.MaxInFlight, c.MaxInFlightPerSubscription, c.Grace = 8, 8, 20*time.Second
	w := observe(t, &c)
	s.enqueue(names("k", 28)...)
	d, err := delivery.New(c)
	s.is.NoErr(err)
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	for range 8 {
		await(t, arrivals)
	}
	s.is.Equal(d.InFlight(), 8)
	cancel()
	cancel() // a second time changes nothing
	close(hold)
	s.is.NoErr(await(t, done))
	for _, o := range w.outcomes(8) {
		s.is.Equal(o.State, delivery.SettledDelivered)
	}
	s.is.Equal(s.requests("/a"), 8)
	s.is.Equal(s.counts(sub), "pending:20 delivered:8 ")
	s.is.Equal(d.InFlight(), 0)
	s.sound()
}

func TestBC30_WhatIsCutIsReleasedUncharged(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts, set.DisableAfter = 1, 1 })
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	s.behave("/a", receiver.Behaviour{Hold: hold})
	arrivals, stopArrivals := s.receiver.Arrivals(100)
	defer stopArrivals()
	c := s.config()
	c.MaxInFlight, c.MaxInFlightPerSubscription, c.Grace = 8, 8, 100*time.Millisecond
	w := observe(t, &c)
	s.enqueue(names("k", 28)...)
	_, stop := s.dispatch(c)
	for range 8 {
		await(t, arrivals)
	}
	s.is.NoErr(stop())
	for range 8 {
		s.is.Equal(await(t, w.settled).State, delivery.SettledReleased)
	}
	s.is.Equal(s.counts(sub), "pending:28 ")
	for _, d := range s.log(sub) {
		s.is.Equal(d.Attempts, 0)
		s.is.Equal(len(s.attempts(sub, d.ID)), 0)
	}
	s.is.Equal(s.subscription(sub).Failures, 0)
	s.is.Equal(s.subscription(sub).State, delivery.Active)
	claims := s.claim(28) // at once, and each as its first attempt
	s.is.Equal(len(claims), 28)
	for _, c := range claims {
		s.is.Equal(c.Attempt, 1)
	}
}

func TestAStopUnderLoadLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	s.behave("/a", receiver.Behaviour{Jitter: 4 * time.Millisecond})
	s.enqueue(slices.Repeat(names("k", 50), 10)...)
	total := int64(0)
	for range 5 {
		c := s.config()
		w := observe(t, &c)
		_, stop := s.dispatch(c)
		w.outcomes(60)
		s.is.NoErr(stop())
		counts, err := s.store.Counts(s.ctx, sub)
		s.is.NoErr(err)
		s.is.Equal(counts[delivery.Delivering], int64(0)) // nothing is left behind
		total = counts[delivery.Delivered]
		s.is.Equal(s.receiver.Verdict().Accepted, total) // and all that arrived is known
	}
	s.is.True(total >= 300)
	s.dispatch(s.config())
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 500))
	s.sound()
	s.is.Equal(s.receiver.Verdict().Duplicates, int64(0))
}

func TestAStopBeforeTheStartOfWork(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	s.enqueue("x")
	c := s.config()
	w := observe(t, &c)
	d, err := delivery.New(c)
	s.is.NoErr(err)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	s.is.NoErr(d.Run(ctx))
	s.is.Equal(len(w.claimed), 0)
	s.is.Equal(s.counts(sub), "pending:1 ")
}

func TestADispatcherRunsOnce(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	d, stop := s.dispatch(s.config())
	s.eventually(d.Listening)
	s.is.True(d.Run(s.within(patience)) != nil) // while it runs
	s.is.NoErr(stop())
	s.is.True(d.Run(s.within(patience)) != nil) // and after
}

func TestADispatcherThatNeverRunsHoldsNothing(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	c := s.config()
	c.Claimant = ""
	d, err := delivery.New(c)
	s.is.NoErr(err)
	s.is.True(d.Claimant() != "")
	s.is.Equal(d.InFlight(), 0)
	s.is.True(!d.Listening())
}

// timeoutOf is a sender of which only the timeout matters.
type timeoutOf struct {
	delivery.Sender
	timeout time.Duration
}

func (s timeoutOf) Timeout() time.Duration { return s.timeout }

func TestConfigIsRefusedWhereItCannotWork(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	for want, change := range map[string]func(*delivery.Config){
		"needs a Store":                     func(c *delivery.Config) { c.Store = nil },
		"MaxInFlight is -1":                 func(c *delivery.Config) { c.MaxInFlight = -1 },
		"MaxInFlight is 100001":             func(c *delivery.Config) { c.MaxInFlight = 100_001 },
		"MaxInFlightPerSubscription is -1":  func(c *delivery.Config) { c.MaxInFlightPerSubscription = -1 },
		"use 1 to MaxInFlight (16)":         func(c *delivery.Config) { c.MaxInFlightPerSubscription = 17 },
		"Batch is -1":                       func(c *delivery.Config) { c.Batch = -1 },
		"Batch is 10001":                    func(c *delivery.Config) { c.Batch = 10_001 },
		"Lease is 1.999s":                   func(c *delivery.Config) { c.Lease = 1999 * time.Millisecond },
		"use at least 41s":                  func(c *delivery.Config) { c.Sender = timeoutOf{timeout: 40 * time.Second}; c.Lease = 0 },
		"Lease is 24h0m1s":                  func(c *delivery.Config) { c.Lease = 24*time.Hour + time.Second },
		"Lease is -1s":                      func(c *delivery.Config) { c.Lease = -time.Second },
		"Poll is -1s; use 1ms or more":      func(c *delivery.Config) { c.Poll = -time.Second },
		"Reclaim is 1µs":                    func(c *delivery.Config) { c.Reclaim = time.Microsecond },
		"Grace is -1ns":                     func(c *delivery.Config) { c.Grace = -1 },
		"Poll is 1ns; use 1ms or more\ndel": func(c *delivery.Config) { c.Poll, c.MaxInFlight = 1, -1 },
	} {
		if want == "Poll is 1ns; use 1ms or more\ndel" { // several at once, in one answer
			want = "Poll is 1ns"
		}
		t.Run(want, func(t *testing.T) {
			is := is.New(t)
			c := s.config()
			change(&c)
			_, err := delivery.New(c)
			is.True(err != nil)
			if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "delivery: ") {
				t.Errorf("the error is %q, without %q", err, want)
			}
		})
	}
	_, err := delivery.New(delivery.Config{Store: s.store}) // the zero value works
	s.is.NoErr(err)
	_, err = delivery.New(delivery.Config{Store: s.store, MaxInFlight: 1})
	s.is.NoErr(err)
}

func TestTheObserverIsToldOfEveryAttempt(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts = 2 })
	s.behave("/a", receiver.Behaviour{Answer: func(a receiver.Arrival) int {
		if a.Asset == "bad" {
			return 503
		}
		return 0
	}})
	c := s.config()
	w := observe(t, &c)
	ages := make(chan time.Duration, 1000)
	c.Observer.OldestDue = func(age time.Duration) { tell(ages, age) }
	active := make(chan int, 1000)
	c.Observer.ActiveSubscriptions = func(n int) { tell(active, n) }
	s.enqueue("good", "bad")
	s.dispatch(c)
	got := map[delivery.Settled]delivery.Observation{}
	for _, o := range w.outcomes(3) {
		s.is.Equal(o.Subscription, sub)
		s.is.Equal(o.EventType, "thing.changed")
		s.is.True(o.Duration > 0)
		got[o.State] = o
	}
	s.is.Equal(got[delivery.SettledDelivered].Status, 200)
	s.is.Equal(got[delivery.SettledDelivered].Outcome, string(sender.Delivered))
	s.is.Equal(got[delivery.SettledPending].Status, 503)
	s.is.Equal(got[delivery.SettledDead].Outcome, string(sender.HTTPStatus))
	claimed := 0
	for claimed < 3 {
		claimed += await(t, w.claimed)
	}
	s.is.Equal(await(t, active), 1)
	for await(t, ages) >= 0 { // until nothing waits
	}
	_, err := s.store.Pause(s.ctx, sub, "")
	s.is.NoErr(err)
	s.is.True(!errors.Is(err, delivery.ErrNotFound))
	s.is.Equal(w.orphans.Load(), int64(0))
}
