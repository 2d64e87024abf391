package delivery_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/receiver"
)

func TestAnOutageOfTheDatabaseChargesNothingAndLosesNothing(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts, set.DisableAfter = 1, 1 })
	hold := make(chan struct{})
	s.behave("/a", receiver.Behaviour{Hold: hold})
	arrivals, stopArrivals := s.receiver.Arrivals(1000)
	defer stopArrivals()
	for range 3 {
		s.enqueue(names("k", 20)...)
	}
	c := s.brief(s.config())
	c.MaxInFlightPerSubscription = 16
	store, p := s.throughProxy()
	c.Store = store
	lines := make(chan string, 10_000)
	c.Logger = logTo(lines)
	w := observe(t, &c)
	s.dispatch(c)
	for range 16 {
		await(t, arrivals)
	}
	p.set(true)
	close(hold) // all 16 are answered while nothing can be recorded
	logged(t, lines, "recording attempts failed")
	s.eventually(func() bool { // the leases have run out, and more than that
		var expired bool
		s.is.NoErr(s.pool.QueryRow(s.ctx, "SELECT bool_and(lease_until < now() - interval '1 s') FROM postlane.leases").Scan(&expired))
		return expired
	})
	s.is.Equal(s.counts(sub), "pending:44 delivering:16 ")
	p.set(false)
	w.outcomes(60)
	s.is.Equal(s.counts(sub), "delivered:60 ")
	s.is.Equal(s.requests("/a"), 60) // none twice
	for _, d := range s.log(sub) {
		s.is.Equal(d.Attempts, 1)
		s.is.Equal(len(s.attempts(sub, d.ID)), 1)
	}
	s.is.Equal(s.subscription(sub).Failures, 0)
	s.is.Equal(len(w.reclaimed)+len(w.lost), 0)
	s.sound()
}

func TestOutagesUnderLoad(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	s.behave("/a", receiver.Behaviour{Jitter: 5 * time.Millisecond})
	for range 10 {
		s.enqueue(names("k", 100)...)
	}
	c := s.brief(s.config())
	c.MaxInFlightPerSubscription, c.Ahead = 16, 3
	store, p := s.throughProxy()
	c.Store = store
	w := observe(t, &c)
	s.dispatch(c)
	for range 4 {
		w.outcomes(100)
		p.set(true)
		w2 := s.receiver.Verdict().Accepted
		s.eventually(func() bool { return s.receiver.Verdict().Open == 0 })
		s.is.True(s.receiver.Verdict().Accepted-w2 <= 16*(1+3)) // each stream ends its run
		p.set(false)
	}
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 1000))
	s.eventually(func() bool { return s.counts(sub) == "delivered:1000 " })
	s.sound()
	// What was claimed in the moment of the outage may come back as stalled; nothing
	// that was answered is sent again.
	s.is.Equal(s.receiver.Verdict().Duplicates, int64(0))
	s.is.Equal(s.subscription(sub).Failures, 0)
}

func TestAStopWhileTheDatabaseIsAwayNamesWhatIsLeft(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	hold := make(chan struct{})
	s.behave("/a", receiver.Behaviour{Hold: hold})
	arrivals, stopArrivals := s.receiver.Arrivals(10)
	defer stopArrivals()
	s.enqueue("x", "y")
	c := s.brief(s.config())
	c.Grace = 100 * time.Millisecond
	store, p := s.throughProxy()
	c.Store = store
	_, stop := s.dispatch(c)
	await(t, arrivals)
	await(t, arrivals)
	p.set(true)
	close(hold)
	err := stop()
	s.is.True(err != nil && strings.Contains(err.Error(), "2 deliveries could not be recorded"))
	s.is.Equal(s.counts(sub), "delivering:2 ")
	s.dispatch(s.config()) // when the leases end
	s.eventually(func() bool { return s.counts(sub) == "delivered:2 " })
	s.is.Equal(s.receiver.Verdict().Redelivered, int64(2))
}

func TestBC29_NoConnectionIsHeldWhileEndpointsHang(t *testing.T) {
	t.Parallel()
	s := setupSiteWith(t, func(c *pgxpool.Config) {
		c.MaxConns = 4
		c.ConnConfig.RuntimeParams["application_name"] = "product"
	}, delivery.StoreConfig{})
	var subs []delivery.SubscriptionID
	for i := range 16 {
		subs = append(subs, s.endpoint(fmt.Sprintf("/%d", i)))
	}
	hold := make(chan struct{})
	s.behave(receiver.AnyPath, receiver.Behaviour{Hold: hold})
	arrivals, stopArrivals := s.receiver.Arrivals(100)
	defer stopArrivals()
	s.enqueue("x", "x")
	c := s.config()
	c.MaxInFlight = 17
	w := observe(t, &c)
	s.dispatch(c)
	for range 16 {
		await(t, arrivals)
	}
	beside, err := pgx.ConnectConfig(s.ctx, s.pool.Config().ConnConfig.Copy())
	s.is.NoErr(err)
	t.Cleanup(func() { _ = beside.Close(t.Context()) })
	var began time.Time
	s.is.NoErr(beside.QueryRow(s.ctx, "SELECT clock_timestamp()").Scan(&began))
	for range 20 {
		s.passes(1, w)
		page, err := s.store.Deliveries(s.ctx, subs[0], delivery.Filter{}, 0, 10)
		s.is.NoErr(err)
		s.is.Equal(len(page.Deliveries), 2)
	}
	var since int
	s.is.NoErr(beside.QueryRow(s.ctx, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND xact_start < $1`, began).Scan(&since))
	s.is.Equal(since, 0)
	close(hold)
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 32))
	s.sound()
}

// A claim that ran out of time looked through what stands in its way, and would again: it
// is moved away before the next.
func TestWhatStandsInTheWayOfAClaimIsMovedThoughTheClaimFails(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	for range 3 { // in transactions of their own, so that each is ready
		s.enqueue("one")
	}
	tx, err := s.pool.Begin(s.ctx)
	s.is.NoErr(err)
	_, err = tx.Exec(s.ctx, "SELECT pg_advisory_xact_lock(1886351212, 1)") // claims wait for it
	s.is.NoErr(err)
	s.dispatch(s.brief(s.config()))
	s.eventually(func() bool {
		var ready int
		s.is.NoErr(s.pool.QueryRow(s.ctx, "SELECT count(*) FROM postlane.deliveries WHERE ready IS NOT NULL").Scan(&ready))
		return ready == 1
	})
	s.is.Equal(s.counts(sub), "pending:3 ")
	s.is.NoErr(tx.Rollback(s.ctx))
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 3))
}
