package delivery_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/receiver"
)

// untilPoll is a poll so long that a test that waits for one fails.
const untilPoll = 10 * patience

func TestBC11_OnlyAnEmptyTableMakesADispatcherWait(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	s.enqueue(names("k", 200)...)
	c := s.config()
	c.NoListen, c.Poll, c.MaxInFlight, c.MaxInFlightPerSubscription = true, untilPoll, 4, 4
	for range 4 {
		s.dispatch(c)
	}
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 200))
	s.eventually(func() bool { return s.counts(sub) == "delivered:200 " })
	s.sound()
}

func TestSlotsOfASubscriptionAreUsedAgainWithoutAPoll(t *testing.T) {
	t.Parallel()
	t.Run("its own limit", func(t *testing.T) {
		t.Parallel()
		s := setupSite(t)
		s.endpoint("/a", func(set *delivery.Settings) { set.MaxInFlight = 1 })
		s.enqueue(names("k", 20)...)
		c := s.config()
		c.NoListen, c.Poll = true, untilPoll
		s.dispatch(c)
		s.is.NoErr(s.receiver.WaitFor(s.within(patience), 20))
		s.sound()
	})
	t.Run("shared by two dispatchers", func(t *testing.T) {
		t.Parallel()
		s := setupSite(t)
		s.endpoint("/a", func(set *delivery.Settings) { set.MaxInFlight = 2 })
		hold := make(chan struct{})
		s.behave("/a", receiver.Behaviour{Hold: hold})
		arrivals, stop := s.receiver.Arrivals(100)
		defer stop()
		c := s.config()
		c.NoListen, c.Poll = true, untilPoll
		s.enqueue("k0")
		s.dispatch(c)
		await(t, arrivals)
		s.enqueue(names("k", 20)...)
		s.dispatch(c)
		await(t, arrivals)
		// Each has one of the two slots now, and neither took the limit.
		close(hold)
		s.is.NoErr(s.receiver.WaitFor(s.within(patience), 21))
		s.sound()
	})
	t.Run("of which more were taken than there are", func(t *testing.T) {
		t.Parallel()
		s := setupSite(t)
		sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxInFlight = 4 })
		var watches []*watch
		var gates []chan struct{}
		for i := range 2 { // each has two of the four slots
			c := s.config()
			c.NoListen, c.Poll = true, untilPoll
			gate, began := make(chan struct{}), make(chan struct{}, 100)
			c.Sender = sendFunc{c.Sender, func(send func() sender.Result, _ sender.Request) sender.Result {
				began <- struct{}{}
				<-gate
				return send()
			}}
			watches, gates = append(watches, observe(t, &c)), append(gates, gate)
			s.enqueue(names(fmt.Sprint(i), 2)...)
			s.dispatch(c)
			await(t, began)
			await(t, began)
		}
		s.enqueue(names("k", 20)...)
		_, err := s.store.UpdateSubscription(s.ctx, sub, func(set *delivery.Settings) error { set.MaxInFlight = 2; return nil })
		s.is.NoErr(err)
		for i, w := range watches { // what each frees first is over the limit
			for len(w.claimed) > 0 {
				<-w.claimed
			}
			gates[i] <- struct{}{}
			w.outcomes(1)
			if i == 0 {
				s.is.Equal(await(t, w.claimed), 0)
			}
		}
		close(gates[0])
		close(gates[1])
		s.is.NoErr(s.receiver.WaitFor(s.within(patience), 24))
		s.sound()
	})
	t.Run("beside another subscription", func(t *testing.T) {
		t.Parallel()
		s := setupSite(t)
		s.endpoint("/slow", func(set *delivery.Settings) { set.EventTypes = []string{"slow"} })
		s.endpoint("/quick", func(set *delivery.Settings) { set.EventTypes = []string{"quick"} })
		hold := make(chan struct{})
		s.behave("/slow", receiver.Behaviour{Hold: hold})
		arrivals, stop := s.receiver.Arrivals(100)
		defer stop()
		c := s.config()
		c.NoListen, c.Poll, c.MaxInFlightPerSubscription = true, untilPoll, 1
		w := observe(t, &c)
		for i := range 5 {
			s.enqueueEvents(
				delivery.Event{Tenant: tenant, Type: "slow", Asset: fmt.Sprint(i), Payload: []byte("{}")},
				delivery.Event{Tenant: tenant, Type: "quick", Asset: fmt.Sprint(i), Payload: []byte("{}")})
		}
		s.dispatch(c)
		for range 6 {
			await(t, arrivals)
		}
		w.outcomes(5) // of the quick one
		close(hold)
		s.is.NoErr(s.receiver.WaitFor(s.within(patience), 10))
		s.sound()
	})
}

func TestBC20_ARetryHoldsItsStreamAndNoOther(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	s.endpoint("/s")
	fails := 2
	s.behave("/s", receiver.Behaviour{Answer: func(a receiver.Arrival) int {
		if a.Asset == "a" && fails > 0 {
			fails--
			return 500
		}
		return 0
	}})
	arrivals, stop := s.receiver.Arrivals(100)
	defer stop()
	e := s.enqueue("a", "a", "a", "b")
	c := s.config()
	c.Schedule = schedule(t, time.Second)
	s.dispatch(c)
	var a, all []int64
	for range 6 {
		x := await(t, arrivals)
		all = append(all, x.Seq)
		if x.Asset == "a" {
			a = append(a, x.Seq)
		}
	}
	s.is.Equal(a, []int64{e[0].Seq, e[0].Seq, e[0].Seq, e[1].Seq, e[2].Seq})
	s.is.True(all[0] == e[3].Seq || all[1] == e[3].Seq) // the other key at once
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 4))
	s.sound()
}

func TestBC21_OneOpenRequestOfAKeyAndTheOthersInParallel(t *testing.T) {
	t.Parallel()
	for dispatchers := 1; dispatchers <= 2; dispatchers++ {
		t.Run(fmt.Sprint(dispatchers), func(t *testing.T) {
			t.Parallel()
			s := setupSite(t)
			sub := s.endpoint("/a")
			hold := make(chan struct{})
			s.behave("/a", receiver.Behaviour{Hold: hold, Delay: 10 * time.Millisecond})
			arrivals, stop := s.receiver.Arrivals(100)
			defer stop()
			var mixed []string
			for _, other := range names("o", 20) {
				mixed = append(mixed, "key", other)
			}
			s.enqueue(mixed...)
			c := s.config()
			c.MaxInFlight, c.MaxInFlightPerSubscription, c.Batch = 16, 16, 10
			for range dispatchers {
				s.dispatch(c)
			}
			var order []int64
			for i := range 40 {
				if a := await(t, arrivals); a.Asset == "key" {
					order = append(order, a.Seq)
				}
				if i == c.MaxInFlight-1 { // all slots are open, in parallel
					close(hold)
				}
			}
			s.is.Equal(len(order), 20)
			for i := range order[1:] {
				s.is.True(order[i] < order[i+1])
			}
			s.is.NoErr(s.receiver.WaitFor(s.within(patience), 40))
			s.sound() // no overlap, no gap, in order
			s.is.Equal(s.receiver.Verdict().Duplicates, int64(0))
			s.eventually(func() bool { return s.counts(sub) == "delivered:40 " })
		})
	}
}

func TestBC23_ADeadLetterLetsItsStreamGoOn(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts = 3 })
	s.behave("/a", receiver.Behaviour{Answer: func(a receiver.Arrival) int {
		if a.Type == "bad" {
			return 503
		}
		return 0
	}})
	s.enqueueEvents(delivery.Event{Tenant: tenant, Type: "bad", Asset: "x", Payload: []byte("{}")}, event("x"))
	s.dispatch(s.config())
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 1))
	s.eventually(func() bool { return s.counts(sub) == "delivered:1 dead:1 " })
	log := s.log(sub)
	s.is.Equal(log[0].State, delivery.Dead)
	s.is.Equal(log[0].Attempts, 3)
	s.is.Equal(log[0].Reason, "attempts used up: http_status")
	last := s.attempts(sub, log[0].ID)[2]
	s.is.Equal(*last.Status, 503)
	s.is.Equal(last.Outcome, "http_status")
	s.is.Equal(s.requests("/a"), 4)
	s.sound()
}

func TestBC23_AHeldStreamWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a", func(set *delivery.Settings) { set.MaxAttempts, set.OnDead = 1, delivery.Hold })
	var healed atomic.Bool
	s.behave("/a", receiver.Behaviour{Answer: func(a receiver.Arrival) int {
		if a.Asset == "x" && !healed.Load() {
			return 500
		}
		return 200
	}})
	s.enqueue("x", "x", "y")
	c := s.config()
	w := observe(t, &c)
	s.dispatch(c)
	s.eventually(func() bool { return s.counts(sub) == "pending:1 delivered:1 dead:1 " })
	s.passes(3, w)
	s.is.Equal(s.counts(sub), "pending:1 delivered:1 dead:1 ") // nothing goes past it
	streams, err := s.store.Streams(s.ctx, sub, nil, 10)
	s.is.NoErr(err)
	s.is.Equal(len(streams), 1)
	s.is.True(streams[0].Head.Held)
	healed.Store(true)
	s.is.NoErr(s.store.Revive(s.ctx, sub, streams[0].Head.ID))
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 3))
	s.sound()
}

func TestBC24_AttemptsAreCountedFromOneAndAllOfThem(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	three := s.endpoint("/three", func(set *delivery.Settings) { set.MaxAttempts = 3 })
	one := s.endpoint("/one", func(set *delivery.Settings) { set.MaxAttempts = 1 })
	s.behave(receiver.AnyPath, receiver.Behaviour{Status: 500})
	s.enqueue("x")
	c := s.config()
	w := observe(t, &c)
	s.dispatch(c)
	w.outcomes(4)
	s.passes(3, w)
	s.is.Equal(s.requests("/three"), 3)
	s.is.Equal(s.requests("/one"), 1)
	for sub, n := range map[delivery.SubscriptionID]int{three: 3, one: 1} {
		d := s.log(sub)[0]
		s.is.Equal(d.State, delivery.Dead)
		s.is.Equal(d.Attempts, n)
		attempts := s.attempts(sub, d.ID)
		s.is.Equal(len(attempts), n)
		for i, a := range attempts {
			s.is.Equal(a.Number, i+1)
		}
	}
	s.sound()
}

func TestTwoDispatchersShareABacklog(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	subs := []delivery.SubscriptionID{s.endpoint("/a"), s.endpoint("/b"), s.endpoint("/c")}
	s.behave(receiver.AnyPath, receiver.Behaviour{Jitter: 5 * time.Millisecond})
	var assets []string
	for range 10 {
		assets = append(assets, names("k", 30)...)
		assets = append(assets, "") // the stream without an asset
	}
	s.enqueue(assets...)
	c1, c2 := s.config(), s.config()
	for _, c := range []*delivery.Config{&c1, &c2} { // neither can take all slots
		c.MaxInFlight, c.MaxInFlightPerSubscription = 6, 6
	}
	w1, w2 := observe(t, &c1), observe(t, &c2)
	s.dispatch(c1)
	s.dispatch(c2)
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 930))
	s.sound()
	s.is.Equal(s.receiver.Verdict().Duplicates, int64(0))
	for _, sub := range subs {
		s.eventually(func() bool { return s.counts(sub) == "delivered:310 " })
	}
	s.is.Equal(len(w1.lost)+len(w2.lost), 0)
	s.is.Equal(w1.orphans.Load()+w2.orphans.Load(), int64(0))
}

// While claims find as many as they want, what is due is made ready all the same.
func TestARetryDoesNotWaitForTheEndOfABacklog(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	s.endpoint("/retried", func(set *delivery.Settings) { set.EventTypes = []string{"retried"} })
	s.behave("/retried", receiver.Behaviour{FailFirst: 1})
	e := event("a")
	e.Type = "retried"
	s.enqueueEvents(e)
	for i := range 8 {
		s.endpoint(fmt.Sprintf("/%d", i), func(set *delivery.Settings) { set.EventTypes = []string{"thing.*"} })
	}
	for range 10 {
		s.enqueue(names("k", 300)...)
	}
	c := s.config()
	c.MaxInFlight, c.MaxInFlightPerSubscription, c.Ahead = 32, 4, -1
	c.Schedule = schedule(t, 100*time.Millisecond)
	s.dispatch(c)
	s.eventually(func() bool { return s.receiver.VerdictOf("/retried").Duplicates == 1 })
	s.is.True(s.receiver.Verdict().Requests < 8*3000) // a backlog is left
}
