package delivery_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/receiver"
)

func TestBC22_AHangingEndpointTakesItsShareAndNoMore(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	hangs := s.endpoint("/hangs", func(set *delivery.Settings) { set.EventTypes = []string{"slow"} })
	s.endpoint("/healthy", func(set *delivery.Settings) { set.EventTypes = []string{"thing.*"} })
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	s.behave("/hangs", receiver.Behaviour{Hold: hold})
	arrivals, stop := s.receiver.Arrivals(1000)
	defer stop()
	flood := make([]delivery.Event, 500)
	for i, asset := range names("k", 500) {
		flood[i] = delivery.Event{Tenant: tenant, Type: "slow", Asset: asset, Payload: []byte("{}")}
	}
	s.enqueueEvents(flood...)
	c := s.config()                  // whose timeout is no shorter than what is waited for
	c.Grace = 100 * time.Millisecond // those that hang are cut at the end
	s.dispatch(c)
	for range 4 {
		s.is.Equal(await(t, arrivals).Path, "/hangs")
	}
	s.enqueue(names("h", 20)...)
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 20))
	s.is.True(s.receiver.VerdictOf("/hangs").Open <= 4)
	s.is.Equal(s.subscription(hangs).Failures, 0)
}

func TestLimitsInFlightHoldUnderLoad(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	s.endpoint("/wide")
	s.endpoint("/narrow", func(set *delivery.Settings) { set.MaxInFlight = 2 })
	s.endpoint("/other")
	var all, most atomic.Int64
	peak := func(p *atomic.Int64, n int64) {
		for m := p.Load(); n > m && !p.CompareAndSwap(m, n); m = p.Load() {
		}
	}
	open := map[string]*atomic.Int64{"/wide": {}, "/narrow": {}, "/other": {}}
	snd := s.config().Sender
	c := s.config()
	c.MaxInFlight, c.MaxInFlightPerSubscription = 8, 5
	// Counted where the requests start: the receiver sees one end a little after.
	c.Sender = sendFunc{snd, func(send func() sender.Result, r sender.Request) sender.Result {
		peak(&all, most.Add(1))
		path := r.URL[len(s.url):]
		if n := open[path].Add(1); path == "/narrow" && n > 2 || n > 5 {
			t.Errorf("%d requests are open to %s", n, path)
		}
		defer func() { most.Add(-1); open[path].Add(-1) }()
		return send()
	}}
	s.behave(receiver.AnyPath, receiver.Behaviour{Jitter: 4 * time.Millisecond})
	s.enqueue(names("k", 300)...)
	s.dispatch(c)
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 900))
	s.is.True(all.Load() <= 8)
	s.is.True(all.Load() > 5)
	s.sound()
}
