package delivery_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/retry"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/receiver"
)

// site is a store with a receiver, whose subscriptions are its paths.
type site struct {
	*bundle
	receiver *receiver.Receiver
	url      string
}

func setupSite(t *testing.T) *site {
	t.Helper()
	b := setup(t)
	r, err := receiver.New(receiver.Config{})
	b.is.NoErr(err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	b.is.NoErr(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		is.New(t).NoErr(<-done)
	})
	return &site{bundle: b, receiver: r, url: "http://" + ln.Addr().String()}
}

// endpoint subscribes a path of the receiver.
func (s *site) endpoint(path string, change ...func(*delivery.Settings)) delivery.SubscriptionID {
	s.t.Helper()
	settings := delivery.Settings{URL: s.url + path}
	for _, f := range change {
		f(&settings)
	}
	sub, secret, err := s.store.CreateSubscription(s.ctx, tenant, settings)
	s.is.NoErr(err)
	s.is.NoErr(s.receiver.SetSecrets(path, secret.Reveal()))
	return sub.ID
}

// config is a dispatcher's with times that suit a test.
func (s *site) config() delivery.Config {
	s.t.Helper()
	g, err := guard.New(guard.Policy{Development: true})
	s.is.NoErr(err)
	snd, err := sender.New(sender.Config{Guard: g, Timeout: time.Second})
	s.is.NoErr(err)
	s.t.Cleanup(snd.Close)
	schedule, err := retry.NewSchedule(0, 100*time.Millisecond)
	s.is.NoErr(err)
	return delivery.Config{
		Store: s.store, Sender: snd, MaxInFlight: 16, Lease: 2 * time.Second, Poll: 200 * time.Millisecond, Reclaim: 200 * time.Millisecond,
		Grace: 5 * time.Second, Schedule: schedule, Logger: slog.New(slog.NewTextHandler(testWriter{s.t}, nil)),
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(p[:len(p)-1]))
	return len(p), nil
}

// dispatch runs a dispatcher until the test ends, or stop is called.
func (s *site) dispatch(c delivery.Config) (d *delivery.Dispatcher, stop func() error) {
	s.t.Helper()
	d, err := delivery.New(c)
	s.is.NoErr(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	s.t.Cleanup(func() { is.New(s.t).NoErr(stop()) })
	return d, stop
}

// within is a context for something that must happen soon.
func (s *site) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(s.ctx, d)
	s.t.Cleanup(cancel)
	return ctx
}

func TestEventsArriveInOrder(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	for range 20 {
		s.enqueue("x", "x", "y", "", "z")
	}
	s.dispatch(s.config())
	s.is.NoErr(s.receiver.WaitFor(s.within(20*time.Second), 100))
	s.enqueue("x")
	s.is.NoErr(s.receiver.WaitFor(s.within(20*time.Second), 101))
	v := s.receiver.Verdict()
	if !v.OK() {
		t.Fatalf("%+v", v)
	}
	s.is.Equal(v.Duplicates, int64(0))
	s.eventually(func() bool { return s.counts(sub) == "delivered:101 " })
}

// eventually waits until something that has no signal of its own is so.
func (s *site) eventually(f func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		if time.Now().After(deadline) {
			s.t.Fatal("did not come about")
		}
		<-tick.C
	}
}
