package delivery_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/receiver"
)

func TestBC26_EnablingForgetsTheFailures(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts, set.DisableAfter = 1, 5 })
	s.behave("/a", receiver.Behaviour{Status: 500})
	c := s.config()
	w := observe(t, &c)
	s.dispatch(c)
	fail := func(n int) {
		s.enqueue(names("k", n)...)
		w.outcomes(n)
	}
	fail(5)
	await(t, w.disabled)
	s.is.Equal(s.subscription(sub).State, delivery.Disabled)
	_, err := s.store.Enable(s.ctx, sub)
	s.is.NoErr(err)
	fail(1)
	s.is.Equal(s.subscription(sub).State, delivery.Active)
	s.is.Equal(s.subscription(sub).Failures, 1)
	s.behave("/a", receiver.Behaviour{})
	fail(1) // which succeeds
	s.is.Equal(s.subscription(sub).Failures, 0)
	s.behave("/a", receiver.Behaviour{Status: 500})
	fail(4)
	s.is.Equal(s.subscription(sub).State, delivery.Active)
	fail(1)
	s.is.Equal(s.subscription(sub).State, delivery.Disabled)
}

func TestBC27_DisabledAtTheThresholdWithAReason(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts, set.DisableAfter = 1, 20 })
	s.behave("/a", receiver.Behaviour{Status: 500})
	// Without an active subscription nothing would be claimed in the end.
	s.endpoint("/other", func(set *delivery.Settings) { set.EventTypes = []string{"other"} })
	c := s.config()
	c.MaxInFlight, c.MaxInFlightPerSubscription = 4, 4
	w := observe(t, &c)
	began := time.Now()
	s.enqueue(names("k", 60)...)
	s.dispatch(c)
	reason := await(t, w.disabled)
	s.passes(1, w) // a claim may have been under way
	s.eventually(func() bool {
		return s.counts(sub) == fmt.Sprintf("pending:%d dead:%d ", 60-s.requests("/a"), s.requests("/a"))
	})
	n := s.requests("/a")
	s.is.True(n >= 20 && n <= 24)
	s.passes(3, w)
	s.is.Equal(s.requests("/a"), n) // none after it
	now := s.subscription(sub)
	s.is.Equal(now.State, delivery.Disabled)
	s.is.Equal(now.Reason, reason)
	s.is.True(reason != "")
	s.is.True(now.Since.After(began.Add(-time.Second)) && now.Since.Before(time.Now().Add(time.Second)))
	s.is.Equal(len(w.disabled), 0) // told once
	s.enqueue("later")
	s.is.Equal(len(s.log(sub)), 61) // kept for when it is enabled
}

func TestBC28_NothingStartsAfterAPauseAndNothingIsLost(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	s.keepAwake()
	sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts = 50 })
	s.behave("/a", receiver.Behaviour{Status: 500})
	c := s.config()
	c.Schedule = schedule(t, 300*time.Millisecond)
	w := observe(t, &c)
	s.enqueue("a", "a", "a", "a", "b", "b", "b", "c", "c", "c") // three wait for a retry, seven behind them
	s.dispatch(c)
	w.outcomes(5)
	_, err := s.store.Pause(s.ctx, sub, "maintenance")
	s.is.NoErr(err)
	n := s.requests("/a")
	s.eventually(func() bool { // every retry came due
		var waiting int
		s.is.NoErr(s.pool.QueryRow(s.ctx, "SELECT count(*) FROM postlane.deliveries WHERE due_at IS NOT NULL").Scan(&waiting))
		return waiting == 0
	})
	s.passes(5, w)
	s.is.Equal(s.requests("/a"), n)
	s.is.Equal(s.counts(sub), "pending:10 ")
	now := s.subscription(sub)
	s.is.Equal(now.State, delivery.Paused)
	s.is.Equal(now.Reason, "maintenance")
	s.behave("/a", receiver.Behaviour{})
	_, err = s.store.Enable(s.ctx, sub)
	s.is.NoErr(err)
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 10))
	s.sound()
}

// keepAwake adds a subscription that gets nothing: with none that is active, dispatchers
// do not look for deliveries.
func (s *site) keepAwake() {
	s.t.Helper()
	s.endpoint("/awake", func(set *delivery.Settings) { set.EventTypes = []string{"nothing"} })
}

func TestPauseReturnsWhenNoRequestStartsAnyMore(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	s.keepAwake()
	sub := s.endpoint("/a")
	s.behave("/a", receiver.Behaviour{Jitter: 3 * time.Millisecond})
	c1, c2 := s.config(), s.config()
	w1, w2 := observe(t, &c1), observe(t, &c2)
	started := make(chan struct{}, 10_000)
	for _, c := range []*delivery.Config{&c1, &c2} {
		c.Sender = sendFunc{c.Sender, func(send func() sender.Result, _ sender.Request) sender.Result {
			started <- struct{}{}
			return send()
		}}
		s.dispatch(*c)
	}
	total := 0
	for range 15 {
		s.enqueue(slices.Repeat(names("k", 40), 3)...)
		total += 120
		for range 30 { // in the thick of it
			await(t, started)
		}
		_, err := s.store.Pause(s.ctx, sub, "")
		s.is.NoErr(err)
		n := len(started)
		s.passes(1, w1, w2)
		s.is.Equal(len(started), n)
		for len(started) > 0 {
			<-started
		}
		_, err = s.store.Enable(s.ctx, sub)
		s.is.NoErr(err)
		s.is.NoErr(s.receiver.WaitFor(s.within(patience), int64(total)))
		for len(started) > 0 {
			<-started
		}
	}
	s.sound()
	s.is.Equal(s.receiver.Verdict().Duplicates, int64(0))
}

func TestPauseWaitsForAClaimThatHasNotStartedItsRequest(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	c := s.config()
	started := make(chan struct{}, 10)
	c.Sender = sendFunc{c.Sender, func(send func() sender.Result, _ sender.Request) sender.Result {
		started <- struct{}{}
		return send()
	}}
	s.enqueue("x", "x")
	// Between claim and request the subscription's secrets are read.
	tx, err := s.pool.Begin(s.ctx)
	s.is.NoErr(err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(s.ctx, "LOCK TABLE postlane.subscription_secrets IN ACCESS EXCLUSIVE MODE")
	s.is.NoErr(err)
	s.dispatch(c)
	s.eventually(func() bool { return s.counts(sub) == "pending:1 delivering:1 " })
	paused := make(chan error, 1)
	go func() {
		_, err := s.store.Pause(s.ctx, sub, "")
		paused <- err
	}()
	s.eventually(func() bool { return s.subscription(sub).State == delivery.Paused })
	s.is.NoErr(tx.Rollback(s.ctx))
	s.is.NoErr(await(t, paused))
	n := len(started) // 1 or 2, or 0 where this took so long that the claim was released
	s.eventually(func() bool {
		list := s.log(sub)
		return len(slices.DeleteFunc(list, func(d delivery.Delivery) bool { return d.State != delivery.Delivered })) == n
	})
	s.is.Equal(len(started), n)
	s.is.Equal(s.requests("/a"), n)
}

func TestPauseDoesNotWaitForAnEndpointThatHangs(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	hold := make(chan struct{})
	s.behave("/a", receiver.Behaviour{Hold: hold})
	arrivals, stop := s.receiver.Arrivals(10)
	defer stop()
	s.enqueue("x", "x")
	s.dispatch(s.config())
	await(t, arrivals)
	_, err := s.store.Pause(s.within(patience), sub, "")
	s.is.NoErr(err)
	close(hold)
	s.eventually(func() bool { return s.counts(sub) == "pending:1 delivered:1 " }) // what was open was recorded
	s.is.Equal(s.requests("/a"), 1)
}

func TestAChangedURLIsUsedByTheNextRequest(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/old")
	s.behave("/old", receiver.Behaviour{Status: 500})
	c := s.config()
	c.Schedule = schedule(t, time.Second)
	w := observe(t, &c)
	s.enqueue("x", "x")
	s.dispatch(c)
	w.outcomes(1)
	_, err := s.store.UpdateSubscription(s.ctx, sub, func(set *delivery.Settings) error { set.URL = s.url + "/new"; return nil })
	s.is.NoErr(err)
	n := s.requests("/old")
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 2))
	s.is.Equal(s.requests("/old"), n)
	s.is.Equal(s.receiver.VerdictOf("/new").Accepted, int64(2))
}

func TestUpdateReturnsWhileTheSubscriptionIsBusy(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/old")
	s.receiver.SetSecrets(receiver.AnyPath) // both paths are unverified
	s.behave(receiver.AnyPath, receiver.Behaviour{Delay: 50 * time.Millisecond})
	arrivals, stop := s.receiver.Arrivals(5000)
	defer stop()
	c := s.config()
	ctx, cancel := context.WithCancel(s.ctx)
	var producer sync.WaitGroup
	defer producer.Wait()
	defer cancel()
	s.enqueue(names("k", 2000)...)
	s.dispatch(c)
	producer.Go(func() { // never idle
		for range arrivals {
			if ctx.Err() != nil {
				return
			}
		}
	})
	_, err := s.store.UpdateSubscription(s.within(patience), sub, func(set *delivery.Settings) error { set.URL = s.url + "/new"; return nil })
	s.is.NoErr(err)
	n := s.requests("/old")
	s.is.True(s.counts(sub) != "delivered:2000 ") // it was busy all the time
	s.eventually(func() bool { return s.requests("/new") > 20 })
	s.is.Equal(s.requests("/old"), n)
}

func TestRotatedSecretsSignTogetherForTheOverlap(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	c := s.config()
	signatures := make(chan int, 100)
	c.Sender = sendFunc{c.Sender, func(send func() sender.Result, r sender.Request) sender.Result {
		signatures <- len(r.Secrets)
		return send()
	}}
	sub, old, err := s.store.CreateSubscription(s.ctx, tenant, delivery.Settings{URL: s.url + "/a"})
	s.is.NoErr(err)
	s.dispatch(c)
	send := func(secret string) int {
		s.t.Helper()
		s.is.NoErr(s.receiver.SetSecrets("/a", secret))
		n := s.receiver.Verdict().Accepted
		s.enqueue("x")
		s.is.NoErr(s.receiver.WaitFor(s.within(patience), n+1))
		return await(t, signatures)
	}
	s.is.Equal(send(old.Reveal()), 1)
	fresh, err := s.store.RotateSecret(s.ctx, sub.ID, time.Hour)
	s.is.NoErr(err)
	s.is.Equal(send(old.Reveal()), 2) // either verifies
	s.is.Equal(send(fresh.Reveal()), 2)
	s.exec("UPDATE postlane.subscription_secrets SET expires_at = now() + interval '5 s' WHERE expires_at IS NOT NULL")
	s.exec("UPDATE postlane.subscriptions SET revision = revision + 1")
	s.is.Equal(send(fresh.Reveal()), 2) // read, and kept until the old one ends
	s.eventually(func() bool { return send(fresh.Reveal()) == 1 })
	newest, err := s.store.RotateSecret(s.ctx, sub.ID, 0)
	s.is.NoErr(err)
	s.is.Equal(send(newest.Reveal()), 1)
	s.sound()
}

func TestASecretThatCannotBeReadPostponesAndChargesNothing(t *testing.T) {
	t.Parallel()
	key1, key2 := make([]byte, delivery.KeySize), make([]byte, delivery.KeySize)
	rand.Read(key1)
	rand.Read(key2)
	right, err := delivery.NewKeyring(key1)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := delivery.NewKeyring(key2)
	if err != nil {
		t.Fatal(err)
	}
	s := setupSiteWith(t, nil, delivery.StoreConfig{Keyring: right})
	sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts = 1 })
	s.enqueue("x")
	other, err := delivery.NewStore(s.pool, delivery.StoreConfig{Keyring: wrong})
	s.is.NoErr(err)
	c := s.config()
	w := observe(t, &c)
	c.Store = other
	_, stop := s.dispatch(c)
	o := w.outcomes(1)[0]
	s.is.Equal(o.State, delivery.SettledPending)
	s.is.Equal(o.Outcome, "")
	s.is.NoErr(stop())
	d := s.log(sub)[0]
	s.is.Equal(d.State, delivery.Pending)
	s.is.Equal(d.Attempts, 0)
	s.is.True(d.Due != nil) // later, not at once
	s.is.Equal(len(s.attempts(sub, d.ID)), 0)
	s.is.Equal(s.requests("/a"), 0)
	s.is.Equal(s.subscription(sub).Failures, 0)

	s.exec("UPDATE postlane.deliveries SET due_at = now()")
	s.dispatch(s.config()) // one that has the key
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 1))
	s.sound()
}

func TestBC52_DeletingWithWorkPendingAndInFlight(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	hold := make(chan struct{})
	s.behave("/a", receiver.Behaviour{Hold: hold})
	arrivals, stopArrivals := s.receiver.Arrivals(10)
	defer stopArrivals()
	s.enqueue("x", "x", "x", "x", "x", "x")
	c := s.config()
	lines := make(chan string, 1000)
	c.Logger = logTo(lines)
	w := observe(t, &c)
	_, stop := s.dispatch(c)
	await(t, arrivals)
	s.is.NoErr(s.store.DeleteSubscription(s.ctx, sub))
	_, err := s.store.Subscription(s.ctx, sub)
	s.is.True(errors.Is(err, delivery.ErrNotFound))
	s.enqueue("x") // reaches nobody
	close(hold)
	s.is.Equal(w.outcomes(1)[0].State, delivery.SettledDelivered) // as its answer had it
	s.eventually(func() bool { return s.counts(sub) == "delivered:1 discarded:5 " })
	s.is.Equal(s.log(sub)[3].Reason, "subscription deleted")
	s.is.NoErr(stop())
	d, _ := s.dispatch(c)
	s.eventually(func() bool { return d.Dormant() })
	s.is.Equal(s.requests("/a"), 1)
	for len(lines) > 0 {
		if line := <-lines; !strings.Contains(line, "level=INFO") {
			t.Errorf("the log has: %s", line)
		}
	}
}
