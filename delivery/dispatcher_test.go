package delivery_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/retry"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/receiver"
	"github.com/postlane-go/postlane/internal/wake"
)

// site is a store with a receiver, whose subscriptions are its paths.
type site struct {
	*bundle
	receiver *receiver.Receiver
	url      string
}

func setupSite(t *testing.T) *site {
	t.Helper()
	return siteOf(setup(t))
}

// setupSiteWith is setupSite with a pool and a store of the test's choice.
func setupSiteWith(t *testing.T, change func(*pgxpool.Config), store delivery.StoreConfig) *site {
	t.Helper()
	is := is.New(t)
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	is.NoErr(err)
	config.MaxConns = 8
	if change != nil {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	is.NoErr(err)
	t.Cleanup(pool.Close)
	if store.Guard == nil {
		store.Guard, err = guard.New(guard.Policy{Development: true})
		is.NoErr(err)
	}
	st, err := delivery.NewStore(pool, store)
	is.NoErr(err)
	return siteOf(&bundle{t: t, is: is, ctx: t.Context(), pool: pool, store: st})
}

func siteOf(b *bundle) *site {
	b.t.Helper()
	return siteWith(b, receiver.Config{})
}

func siteWith(b *bundle, config receiver.Config) *site {
	t := b.t
	t.Helper()
	r, err := receiver.New(config)
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

// patience is far above what anything takes that a test waits for.
const patience = time.Minute

// config is a dispatcher's that looks often, with a timeout and a lease that no test
// reaches, however busy the machine.
func (s *site) config() delivery.Config {
	s.t.Helper()
	return delivery.Config{
		Store: s.store, Listen: pgtest.Direct(s.t, s.pool), Sender: s.sender(sender.Config{Timeout: patience}), MaxInFlight: 16, Lease: 2 * patience,
		Poll: 200 * time.Millisecond, Reclaim: 200 * time.Millisecond,
		Grace: 5 * time.Second, Schedule: schedule(s.t, 100*time.Millisecond), Logger: slog.New(slog.NewTextHandler(testWriter{s.t}, nil)),
	}
}

// What a test uses that waits for leases to end: short enough to wait for, long enough
// for a busy machine to renew in time.
const (
	briefTimeout = 4 * time.Second
	briefLease   = 6 * time.Second
	// briefStart is how long after its claim a request may start then.
	briefStart = (briefLease - briefTimeout) / 2
)

// brief gives config a timeout and a lease that a test can wait for.
func (s *site) brief(config delivery.Config) delivery.Config {
	s.t.Helper()
	config.Sender, config.Lease = s.sender(sender.Config{Timeout: briefTimeout}), briefLease
	return config
}

// sender makes attempts at the test's receiver.
func (s *site) sender(config sender.Config) *sender.Sender {
	s.t.Helper()
	var err error
	config.Guard, err = guard.New(guard.Policy{Development: true})
	s.is.NoErr(err)
	snd, err := sender.New(config)
	s.is.NoErr(err)
	s.t.Cleanup(snd.Close)
	return snd
}

// sendFunc is a sender with something around its Send.
type sendFunc struct {
	delivery.Sender
	around func(send func() sender.Result, r sender.Request) sender.Result
}

func (f sendFunc) Send(ctx context.Context, r sender.Request) sender.Result {
	return f.around(func() sender.Result { return f.Sender.Send(ctx, r) }, r)
}

func schedule(t *testing.T, delays ...time.Duration) retry.Schedule {
	t.Helper()
	schedule, err := retry.NewSchedule(0, delays...)
	is.New(t).NoErr(err)
	return schedule
}

// logTo is a logger whose lines can be waited for; those that nobody reads are dropped.
func logTo(lines chan string) *slog.Logger {
	return slog.New(slog.NewTextHandler(lineWriter(lines), nil))
}

type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	tell(w, string(p))
	return len(p), nil
}

// logged waits for a line that holds text.
func logged(t *testing.T, lines <-chan string, text string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line := <-lines:
			if strings.Contains(line, text) {
				return
			}
		case <-deadline:
			t.Fatalf("waited %v for %q in the log", patience, text)
		}
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(p[:len(p)-1]))
	return len(p), nil
}

// watch is what a dispatcher's observer is told.
type watch struct {
	t                        *testing.T
	claimed, lost, reclaimed chan int
	settled                  chan delivery.Observation
	disabled                 chan string
	orphans                  atomic.Int64
}

// observe makes config's dispatcher tell a watch. What does not fit its channels is
// dropped, so that one that nobody reads holds nothing up.
func observe(t *testing.T, config *delivery.Config) *watch {
	const room = 10_000
	w := &watch{
		t: t, claimed: make(chan int, room), lost: make(chan int, room), reclaimed: make(chan int, room),
		settled: make(chan delivery.Observation, room), disabled: make(chan string, room),
	}
	config.Observer = delivery.Observer{
		Claimed:    func(n int, _ time.Duration) { tell(w.claimed, n) },
		Settled:    func(o delivery.Observation) { tell(w.settled, o) },
		LeasesLost: func(n int) { tell(w.lost, n) },
		Reclaimed:  func(n int) { tell(w.reclaimed, n) },
		Disabled:   func(_ delivery.SubscriptionID, reason string) { tell(w.disabled, reason) },
		Orphans:    func(n int) { w.orphans.Add(int64(n)) },
	}
	return w
}

func tell[T any](ch chan<- T, x T) {
	select {
	case ch <- x:
	default:
	}
}

// passes wakes dispatchers until each has made n claims that began after this call.
func (s *site) passes(n int, watches ...*watch) {
	s.t.Helper()
	for _, w := range watches {
		for len(w.claimed) > 0 {
			<-w.claimed
		}
	}
	for range n + 1 { // one may have begun before
		s.exec("SELECT pg_notify($1, $2)", wake.Channel, string(wake.Delivery))
		for _, w := range watches {
			await(s.t, w.claimed)
		}
	}
}

// outcomes waits for n settled attempts and returns what became of each. What was given
// back is none: on a busy machine a claim may be too old for its request to start.
func (w *watch) outcomes(n int) []delivery.Observation {
	w.t.Helper()
	list := make([]delivery.Observation, 0, n)
	for len(list) < n {
		if o := await(w.t, w.settled); o.State != delivery.SettledReleased {
			list = append(list, o)
		}
	}
	return list
}

// await fails the test if nothing comes in good time.
func await[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case x := <-ch:
		return x
	case <-time.After(patience):
		t.Fatalf("waited %v for a signal", patience)
		panic("unreachable")
	}
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

// behave replaces how a path of the receiver answers.
func (s *site) behave(path string, b receiver.Behaviour) {
	s.t.Helper()
	s.is.NoErr(s.receiver.Behave(path, b))
}

// requests returns how many requests a path has got.
func (s *site) requests(path string) int { return int(s.receiver.VerdictOf(path).Requests) }

// log returns a subscription's deliveries, oldest first.
func (s *site) log(sub delivery.SubscriptionID) []delivery.Delivery {
	s.t.Helper()
	page, err := s.store.DeliveriesOldest(s.ctx, sub, delivery.Filter{}, 0, 1000)
	s.is.NoErr(err)
	return page.Deliveries
}

// attempts returns those of a delivery, first to last.
func (s *site) attempts(sub delivery.SubscriptionID, id delivery.ID) []delivery.Attempt {
	s.t.Helper()
	list, err := s.store.Attempts(s.ctx, sub, id)
	s.is.NoErr(err)
	return list
}

func (s *site) subscription(id delivery.SubscriptionID) *delivery.Subscription {
	s.t.Helper()
	sub, err := s.store.Subscription(s.ctx, id)
	s.is.NoErr(err)
	return sub
}

// sound fails the test if the receiver found any promise broken.
func (s *site) sound() {
	s.t.Helper()
	if v := s.receiver.Verdict(); !v.OK() {
		s.t.Fatalf("the receiver found: %+v", v)
	}
}

// names returns n assets.
func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return list
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
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 100))
	s.enqueue("x")
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 101))
	s.sound()
	s.is.Equal(s.receiver.Verdict().Duplicates, int64(0))
	s.eventually(func() bool { return s.counts(sub) == "delivered:101 " })
}

// eventually waits until something that has no signal of its own is so.
func (s *site) eventually(f func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		if time.Now().After(deadline) {
			s.t.Fatal("did not come about")
		}
		<-tick.C
	}
}
