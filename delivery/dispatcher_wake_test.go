package delivery_test

import (
	"context"
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

// What can be sent is found, however much that can only wait stands before it.
func TestWhatOnlyWaitsHidesNothing(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	s.exec(`
		WITH subs AS (
			INSERT INTO postlane.subscriptions (id, tenant, url, rate_limit, rate_per_s)
			SELECT i, 'other', 'https://example.com/' || i, 1, 3600 FROM generate_series(1, 3000) i RETURNING id
		), paced AS (
			INSERT INTO postlane.paces (subscription_id, interval_us, next_at) SELECT id, 3600000000, now() + interval '1 hour' FROM subs
		), rows AS (
			SELECT id AS sub, nextval('postlane.delivery_seq') AS seq FROM subs
		), stored AS (
			INSERT INTO postlane.events (seq, tenant, id, type, content_type, payload)
			SELECT seq, 'other', 'evt_' || seq, 'thing.changed', 'application/json', '{}' FROM rows
		)
		INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, ready)
		SELECT sub, seq, 'other', 'evt_' || seq, 'thing.changed', seq FROM rows`)
	sub := s.endpoint("/a") // its id is above theirs
	s.enqueue("k")
	c := s.config()
	w := observe(t, &c)
	d, err := delivery.New(c)
	s.is.NoErr(err)
	d.LookFor(time.Millisecond) // a claim needs some 50 ms for so many
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	defer func() {
		stop()
		s.is.NoErr(<-done)
	}()
	w.outcomes(1)
	s.is.Equal(s.counts(sub), "delivered:1 ")
}
