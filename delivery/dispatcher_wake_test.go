package delivery_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/receiver"
)

// asleep returns a site with a dispatcher that listens, has looked and found nothing,
// and will not look again by itself for longer than the test takes.
func asleep(t *testing.T) *site {
	s := setupSite(t)
	s.endpoint("/a")
	c := s.config()
	c.Poll = untilPoll
	w := observe(t, &c)
	d, _ := s.dispatch(c)
	s.eventually(d.Listening)
	await(t, w.claimed) // it looks once more when it has begun to listen
	await(t, w.claimed)
	return s
}

// Not parallel: the process notifies only so often (wake.Limiter), and other tests would
// use that up.
//
//nolint:paralleltest // as said
func TestACommitInTheSamePoolWakesADispatcher(t *testing.T) {
	s := asleep(t)
	for range 5 {
		s.enqueue("x", "y")
	}
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 10))
	s.sound()
}

func TestACommitInAnotherProcessWakesADispatcher(t *testing.T) {
	t.Parallel()
	s := asleep(t)
	other := s.spawn("enqueue", "")
	for i := range 3 {
		other.say("x y")
		s.is.NoErr(s.receiver.WaitFor(s.within(patience), int64(2*(i+1))))
	}
	s.sound()
}

func TestARetryIsMadeWhenItIsDueWithoutAPoll(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	s.endpoint("/a")
	s.behave("/a", receiver.Behaviour{FailFirst: 2})
	c := s.config()
	c.Poll, c.NoListen = untilPoll, true
	s.enqueue("x", "x")
	s.dispatch(c)
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 2))
	s.is.Equal(s.requests("/a"), 4)
	s.sound()
}

func TestPollingFindsWhatNoHintToldOf(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	s.endpoint("/a")
	c := s.config()
	c.NoListen = true
	w := observe(t, &c)
	d, _ := s.dispatch(c)
	await(t, w.claimed)
	s.enqueue("x", "y")
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 2))
	s.is.True(!d.Listening())
}

func TestBC17_ADispatcherListensAgainAfterItsSessionIsEnded(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	s.endpoint("/a")
	c := s.config()
	c.Poll = untilPoll
	d, _ := s.dispatch(c)
	s.eventually(d.Listening)
	other := s.spawn("enqueue", "")
	for i := range 3 {
		var ended int
		s.is.NoErr(s.pool.QueryRow(s.ctx, `SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'postlane wake'`).Scan(&ended)) // and gone
		s.is.Equal(ended, 1)
		other.say("while-away")
		s.is.NoErr(s.receiver.WaitFor(s.within(patience), int64(2*i+1))) // it looks once it listens
		s.eventually(d.Listening)
		other.say("after")
		s.is.NoErr(s.receiver.WaitFor(s.within(patience), int64(2*i+2)))
	}
	s.sound()
}

func TestWithNoSubscriptionADispatcherOnlyAsksForOne(t *testing.T) {
	t.Parallel()
	tr := newTracer()
	s := setupSiteWith(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tr }, delivery.StoreConfig{})
	c := s.config()
	c.Poll = 10 * time.Millisecond
	d, stop := s.dispatch(c)
	for tr.count("SubscriptionAnyActive") < 10 {
		await(t, tr.statements)
	}
	s.is.True(d.Dormant())
	for _, name := range []string{"ClaimBegin", "DeliveryClaim", "DeliveryRipen", "DeliveryPark", "DeliveryWaiting"} {
		s.is.Equal(tr.count(name), 0)
	}
	s.is.NoErr(stop())

	// The first one wakes it, whoever creates it, long before it would look.
	c = s.config()
	c.Poll = untilPoll
	d, _ = s.dispatch(c)
	s.eventually(func() bool { return d.Listening() && d.Dormant() })
	pool, err := pgxpool.New(s.ctx, s.pool.Config().ConnString())
	s.is.NoErr(err)
	t.Cleanup(pool.Close)
	here := s.store
	s.store = storeOn(t, pool)
	sub := s.endpoint("/a")
	s.store = here
	s.eventually(func() bool { return !d.Dormant() })
	s.spawn("enqueue", "").say("x")
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 1))

	// Without the last it sleeps again.
	_, err = s.store.Pause(s.ctx, sub, "")
	s.is.NoErr(err)
	s.eventually(d.Dormant)
}

func TestAnIdleDispatcherCostsLessThanFiveStatementsASecond(t *testing.T) {
	t.Parallel()
	tr := newTracer()
	s := setupSiteWith(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tr }, delivery.StoreConfig{})
	sub := s.endpoint("/a")
	s.enqueue("x")
	d, _ := s.dispatch(delivery.Config{Store: s.store, Listen: s.config().Listen, Logger: s.config().Logger}) // its defaults
	s.eventually(func() bool { return d.Listening() && s.counts(sub) == "delivered:1 " })
	for len(tr.statements) > 0 {
		<-tr.statements
	}
	// From one pass of its upkeep to the next: 5 s and up to a tenth more. What it did
	// to start, on a busy machine, is still in the first of them.
	for await(t, tr.statements) != "LeaseReclaim" {
	}
	perSecond := 0.0
	for range 3 {
		began, n := time.Now(), 1
		for await(t, tr.statements) != "LeaseReclaim" {
			n++
		}
		perSecond = float64(n) / time.Since(began).Seconds()
		t.Logf("%.1f statements a second", perSecond)
		if perSecond < 5 {
			return
		}
	}
	t.Fatalf("%.1f statements a second", perSecond)
}
