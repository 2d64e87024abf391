package delivery_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/receiver"
)

// told lists attempts as "number outcome claimant".
func told(attempts []delivery.Attempt) []string {
	list := make([]string, len(attempts))
	for i, a := range attempts {
		list[i] = fmt.Sprintf("%d %s %s", a.Number, a.Outcome, a.Claimant)
	}
	return list
}

func TestBC07_AFrozenWorkerThatWakesUpChangesNothing(t *testing.T) {
	t.Parallel()
	for _, answer := range []int{200, 500} { // it completes, or fails, what is another's by then
		t.Run(fmt.Sprint(answer), func(t *testing.T) {
			t.Parallel()
			s := setupSite(t)
			sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts, set.DisableAfter = 2, 1 })
			first := make(chan struct{})
			s.behave("/a", receiver.Behaviour{Hold: first, Status: answer})
			arrivals, stopArrivals := s.receiver.Arrivals(10)
			defer stopArrivals()
			w1 := s.spawn("dispatch", "w1")
			s.enqueue("x")
			await(t, arrivals)
			w1.freeze()
			s.behave("/a", receiver.Behaviour{})
			close(first) // its answer waits in the socket

			c := s.config()
			c.Claimant = "w2"
			w := observe(t, &c)
			s.dispatch(c)
			s.is.Equal(await(t, w.reclaimed), 1)
			s.is.Equal(w.outcomes(1)[0].State, delivery.SettledDelivered)
			w1.signal(syscall.SIGCONT)
			w1.await("lost")

			s.is.Equal(s.counts(sub), "delivered:1 ")
			s.is.Equal(told(s.attempts(sub, s.log(sub)[0].ID)), []string{"1 stalled w1", "2 delivered w2"})
			s.is.Equal(s.subscription(sub).Failures, 0)
			s.is.Equal(s.requests("/a"), 2)
			// It goes on with what it claims from now on.
			s.enqueue("x", "y")
			s.is.NoErr(s.receiver.WaitFor(s.within(patience), 3))
			s.sound()
		})
	}
}

func TestBC07_AWorkerFrozenBetweenClaimAndRequestStartsNone(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	c := s.brief(s.config())
	s.enqueueEvents(delivery.Event{Tenant: tenant, Type: "thing.changed", Asset: "x", Payload: make([]byte, 100_000)})
	// A large payload is read between claim and request: it takes longer than the
	// time in which a request may start.
	w := observe(t, &c)
	tx, err := s.pool.Begin(s.ctx)
	s.is.NoErr(err)
	_, err = tx.Exec(s.ctx, "LOCK TABLE postlane.subscription_secrets IN ACCESS EXCLUSIVE MODE")
	s.is.NoErr(err)
	s.dispatch(c)
	s.eventually(func() bool {
		var late bool
		s.is.NoErr(s.pool.QueryRow(s.ctx, "SELECT EXISTS (SELECT FROM postlane.leases WHERE claimed_at < clock_timestamp() - $1::interval)", briefStart+100*time.Millisecond).Scan(&late))
		return late
	})
	s.is.NoErr(tx.Rollback(s.ctx))
	s.is.Equal(await(t, w.settled).State, delivery.SettledReleased)
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 1))
	s.eventually(func() bool { return s.counts(sub) == "delivered:1 " })
	s.is.Equal(s.log(sub)[0].Attempts, 1)
	s.sound()
}

func TestBC08_NoWorkersClockDecidesAnything(t *testing.T) {
	t.Parallel()
	// What a worker's clock says could only get into the database as a parameter.
	tr := newTracer()
	s := setupSiteWith(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tr }, delivery.StoreConfig{})
	sub := s.endpoint("/a")
	hold := make(chan struct{})
	s.behave("/a", receiver.Behaviour{Hold: hold, Answer: func(a receiver.Arrival) int {
		if a.Asset == "k000" && a.Attempt == 1 {
			return 500
		}
		return 0
	}})
	arrivals, stop := s.receiver.Arrivals(100)
	defer stop()
	s.enqueue(names("k", 20)...)
	for range 2 {
		c := s.config()
		c.MaxInFlight, c.MaxInFlightPerSubscription = 20, 20
		// The evidence of an attempt is from a clock 10 minutes off.
		c.Sender = sendFunc{c.Sender, func(send func() sender.Result, _ sender.Request) sender.Result {
			r := send()
			r.Started = r.Started.Round(0).Add(10 * time.Minute)
			return r
		}}
		s.dispatch(c)
	}
	for range 20 {
		await(t, arrivals)
	}
	var agree bool
	s.is.NoErr(s.pool.QueryRow(s.ctx, `SELECT bool_and(abs(extract(epoch FROM clock_timestamp() - claimed_at)) < 60
		AND abs(extract(epoch FROM lease_until - clock_timestamp())) < 300) FROM postlane.leases`).Scan(&agree))
	s.is.True(agree)
	close(hold)
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 20))
	s.eventually(func() bool { return s.counts(sub) == "delivered:20 " })
	s.is.Equal(s.requests("/a"), 21)
	s.is.Equal(s.receiver.Verdict().Redelivered, int64(0))
	var wrong int
	s.is.NoErr(s.pool.QueryRow(s.ctx, `SELECT count(*) FROM postlane.attempts
		WHERE started_at NOT BETWEEN clock_timestamp() - interval '5 min' AND clock_timestamp()`).Scan(&wrong))
	s.is.Equal(wrong, 0)
	s.is.Equal(tr.times(), []string{})
}

func TestBC18_TheTailOfABatchIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{10, 2} {
		t.Run(fmt.Sprintf("%d slots", slots), func(t *testing.T) {
			t.Parallel()
			s := setupSite(t)
			sub := s.endpoint("/a")
			s.behave("/a", receiver.Behaviour{Delay: briefLease / 4}) // two at a time take longer than a lease
			s.enqueue(names("k", 10)...)
			var lost, reclaimed []chan int
			for range 2 {
				c := s.brief(s.config())
				c.Batch, c.MaxInFlight, c.MaxInFlightPerSubscription = 10, slots, slots
				w := observe(t, &c)
				lost, reclaimed = append(lost, w.lost), append(reclaimed, w.reclaimed)
				s.dispatch(c)
			}
			s.is.NoErr(s.receiver.WaitFor(s.within(patience), 10))
			s.eventually(func() bool { return s.counts(sub) == "delivered:10 " })
			s.is.Equal(s.requests("/a"), 10)
			for i := range lost {
				s.is.Equal(len(lost[i])+len(reclaimed[i]), 0)
			}
			s.sound()
		})
	}
}

func TestALeaseIsRenewedForAsLongAsTheRequestIsOpen(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	c := s.brief(s.config())
	open, finish := make(chan struct{}), make(chan struct{})
	c.Sender = sendFunc{c.Sender, func(send func() sender.Result, _ sender.Request) sender.Result {
		close(open)
		<-finish // longer than it promised
		return send()
	}}
	w := observe(t, &c)
	s.enqueue("x")
	s.dispatch(c)
	await(t, open)
	other := s.config()
	w2 := observe(t, &other)
	s.dispatch(other)
	s.eventually(func() bool {
		var kept bool
		s.is.NoErr(s.pool.QueryRow(s.ctx, "SELECT EXISTS (SELECT FROM postlane.leases WHERE lease_until > claimed_at + 2 * $1::interval)", briefLease).Scan(&kept))
		return kept
	})
	close(finish)
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 1))
	s.eventually(func() bool { return s.counts(sub) == "delivered:1 " })
	s.is.Equal(s.requests("/a"), 1)
	s.is.Equal(len(w.reclaimed)+len(w2.reclaimed)+len(w.lost), 0)
}

func TestBC19_AKilledWorkersDeliveriesComeBackByThemselves(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	hold := make(chan struct{})
	s.behave("/a", receiver.Behaviour{Hold: hold})
	arrivals, stopArrivals := s.receiver.Arrivals(10)
	defer stopArrivals()
	d1 := s.spawn("dispatch", "d1")
	e := s.enqueue("x", "x")
	await(t, arrivals)
	d1.signal(syscall.SIGKILL)
	<-d1.ended
	s.behave("/a", receiver.Behaviour{})
	close(hold)
	s.spawn("dispatch", "d1") // one with the same name is not the one that lives on
	again := await(t, arrivals)
	s.is.Equal(again.ID, e[0].ID)
	s.is.Equal(again.Attempt, 2)
	s.is.Equal(await(t, arrivals).ID, e[1].ID)
	s.eventually(func() bool { return s.counts(sub) == "delivered:2 " })
	s.is.Equal(told(s.attempts(sub, s.log(sub)[0].ID)), []string{"1 stalled d1", "2 delivered d1"})
	s.sound()
}
