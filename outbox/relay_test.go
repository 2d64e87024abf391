package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/outbox"
)

// testBundle is a relay over a store in memory, in a bubble whose time passes when
// nobody has anything to do.
type testBundle struct {
	*outbox.Relay
	is     *is.I
	t      *testing.T
	memory *outbox.Memory
	broker *broker
	logs   *logs
}

// inBubble runs a test in a bubble.
func inBubble(t *testing.T, config outbox.RelayConfig, test func(b *testBundle)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &testBundle{is: is.New(t), t: t, broker: &broker{}, logs: &logs{}}
		var err error
		b.memory, err = outbox.NewMemory(outbox.StoreConfig{})
		b.is.NoErr(err)
		if config.Store == nil {
			config.Store = b.memory
		} else {
			config.Store.(*troubled).Store = b.memory
		}
		if config.Publisher == nil {
			config.Publisher = b.broker
		}
		config.Logger = slog.New(slog.NewTextHandler(b.logs, nil))
		b.Relay, err = outbox.NewRelay(config)
		b.is.NoErr(err)
		test(b)
	})
}

func (b *testBundle) stage(queue string, ids ...string) {
	b.t.Helper()
	stageIDs(b.t, b.memory, b.memory.Begin, queue, ids...)
}

func stageIDs(t *testing.T, store outbox.Store, begin func(context.Context) (pgx.Tx, error), queue string, ids ...string) {
	t.Helper()
	is := is.New(t)
	tx, err := begin(t.Context())
	is.NoErr(err)
	for _, id := range ids {
		_, err := store.Stage(t.Context(), tx, outbox.Message{ID: id, Topic: "t", Queue: queue, Payload: []byte(id)})
		is.NoErr(err)
	}
	is.NoErr(tx.Commit(t.Context()))
}

func (b *testBundle) tick() int {
	b.t.Helper()
	n, err := b.Tick(b.t.Context())
	b.is.NoErr(err)
	return n
}

// run runs the relay until stop is called, which waits for it.
func (b *testBundle) run() (stop func()) {
	done := make(chan error, 1)
	go func() { done <- b.Run(context.Background()) }()
	return func() {
		b.Stop()
		b.is.NoErr(<-done)
	}
}

func (b *testBundle) pending() outbox.Backlog {
	b.t.Helper()
	p, err := b.Pending(b.t.Context())
	b.is.NoErr(err)
	return p
}

// broker is a Publisher that keeps what it got, refuses what it is told to, and
// takes its time.
type broker struct {
	mu     sync.Mutex
	refuse map[string]error
	slow   map[string]time.Duration
	all    time.Duration // how long it takes otherwise
	calls  []string
	got    []string
	open   map[string]int // by queue
	faults []string
}

func (b *broker) Publish(ctx context.Context, m outbox.Message) error {
	b.mu.Lock()
	b.calls = append(b.calls, m.ID)
	if b.open == nil {
		b.open = map[string]int{}
	}
	if b.open[m.Queue]++; b.open[m.Queue] > 1 {
		b.faults = append(b.faults, "two of queue "+m.Queue+" at once")
	}
	err, pause := b.refuse[m.ID], b.all
	if d, ok := b.slow[m.ID]; ok {
		pause = d
	}
	b.mu.Unlock()
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[m.Queue]--
	if err == nil {
		b.got = append(b.got, m.ID)
	}
	return err
}

func (b *broker) received() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

func (b *broker) called() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

func (b *broker) set(refuse map[string]error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = refuse
}

type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// troubled is a store whose calls can be made to fail or wait.
type troubled struct {
	outbox.Store
	mu      sync.Mutex
	err     error
	renewed func(renew func() error) error
	marked  func()
}

func (s *troubled) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *troubled) trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *troubled) Claim(ctx context.Context, limit int) ([]outbox.Claim, error) {
	if err := s.trouble(); err != nil {
		return nil, err
	}
	return s.Store.Claim(ctx, limit)
}

func (s *troubled) MarkPublished(ctx context.Context, claims ...outbox.Claim) error {
	if err := s.trouble(); err != nil {
		return err
	}
	err := s.Store.MarkPublished(ctx, claims...)
	if s.marked != nil {
		s.marked()
	}
	return err
}

func (s *troubled) Renew(ctx context.Context, claims ...outbox.Claim) error {
	if err := s.trouble(); err != nil {
		return err
	}
	renew := func() error { return s.Store.Renew(ctx, claims...) }
	if s.renewed != nil {
		return s.renewed(renew)
	}
	return renew()
}

func TestOrderHoldsWithinAQueue(t *testing.T) {
	inBubble(t, outbox.RelayConfig{Batch: 7}, func(b *testBundle) {
		b.broker.all = time.Millisecond
		want := map[string][]string{}
		for _, queue := range []string{"a", "b", "c"} {
			for i := range 20 {
				want[queue] = append(want[queue], fmt.Sprint(queue, i))
			}
			b.stage(queue, want[queue]...)
		}
		stop := b.run()
		time.Sleep(time.Minute)
		stop()
		got := map[string][]string{}
		for _, id := range b.broker.received() {
			got[id[:1]] = append(got[id[:1]], id)
		}
		b.is.Equal(got, want)
		b.is.Equal(b.broker.faults, nil)
		b.is.Equal(b.Stats(), outbox.Stats{Published: 60})
		b.is.Equal(b.memory.Retained(), 0)
	})
}

func TestFailedPublishHandsTheRestBack(t *testing.T) {
	inBubble(t, outbox.RelayConfig{}, func(b *testBundle) {
		b.stage("q", "q0", "q1", "q2", "q3")
		b.stage("r", "r0", "r1")
		b.broker.set(map[string]error{"q1": errors.New("refused")})
		b.is.Equal(b.tick(), 3) // q0, r0, r1
		b.is.Equal(b.Stats(), outbox.Stats{Published: 3, Failed: 1, Released: 2})
		b.is.Equal(b.pending(), outbox.Backlog{Pending: 3, Waiting: 1})
		b.is.Equal(b.tick(), 0) // q2 may not pass q1

		b.broker.set(nil)
		time.Sleep(time.Second)
		b.is.Equal(b.tick(), 3)
		b.is.Equal(b.broker.received()[3:], []string{"q1", "q2", "q3"})
	})
}

func TestBC15BadMessageIsParkedAndOthersGoOn(t *testing.T) {
	inBubble(t, outbox.RelayConfig{Exhausted: outbox.Park, Backoff: func(int) time.Duration { return time.Second }}, func(b *testBundle) {
		b.stage("a", "good1")
		tx, err := b.memory.Begin(b.t.Context())
		b.is.NoErr(err)
		_, err = b.memory.Stage(b.t.Context(), tx, outbox.Message{ID: "bad", Topic: "t", Queue: "b", MaxAttempts: 3})
		b.is.NoErr(err)
		b.is.NoErr(tx.Commit(b.t.Context()))
		b.stage("b", "behind")
		b.stage("c", "good2")
		b.stage("d", "hopeless", "behind hopeless")
		b.broker.set(map[string]error{"bad": errors.New("refused"), "hopeless": outbox.Permanent(errors.New("no such topic"))})

		b.is.Equal(b.tick(), 3) // the good ones, and what stood behind the hopeless
		b.is.Equal(b.pending(), outbox.Backlog{Pending: 2, Waiting: 1, Parked: 1})
		for range 9 {
			time.Sleep(time.Second)
			b.tick()
		}
		b.is.Equal(b.pending(), outbox.Backlog{Parked: 2})
		b.is.Equal(b.Stats(), outbox.Stats{Published: 4, Failed: 4, Parked: 2, Released: 2})

		b.broker.set(nil) // mended
		retried, err := b.memory.Retry(b.t.Context(), "bad", "hopeless")
		b.is.NoErr(err)
		b.is.Equal(len(retried), 2)
		b.is.Equal(b.tick(), 2)
		b.is.Equal(b.memory.Retained(), 0)
	})
}

func TestWedgeIsTheDefaultAndSeen(t *testing.T) {
	inBubble(t, outbox.RelayConfig{Backoff: func(int) time.Duration { return time.Second }}, func(b *testBundle) {
		b.stage("q", "bad", "behind")
		b.broker.set(map[string]error{"bad": outbox.Permanent(errors.New("never"))})
		for range 50 {
			b.tick()
			time.Sleep(time.Second)
		}
		b.tick()
		b.is.Equal(b.pending().Parked, int64(0))
		b.is.Equal(b.pending().Waiting, int64(1))
		b.is.Equal(b.Stats().Failed, int64(51))
		b.broker.set(nil)
		time.Sleep(time.Second)
		b.is.Equal(b.tick(), 2)
	})
}

func TestBC16RefusedMessageIsNotHammered(t *testing.T) {
	inBubble(t, outbox.RelayConfig{Batch: 10}, func(b *testBundle) {
		for i := range 10 {
			b.stage(fmt.Sprint("q", i), fmt.Sprint("m", i))
		}
		b.broker.set(map[string]error{"m3": errors.New("refused")})
		stop := b.run()
		defer stop()
		time.Sleep(5 * time.Second)
		b.broker.set(nil)
		time.Sleep(15 * time.Second)
		calls := map[string]int{}
		for _, id := range b.broker.called() {
			calls[id]++
		}
		b.is.True(calls["m3"] >= 2 && calls["m3"] <= 6)
		delete(calls, "m3")
		for id, n := range calls {
			if n != 1 {
				b.t.Errorf("%s was published %d times", id, n)
			}
		}
		b.is.Equal(b.memory.Retained(), 0)
	})
}

func TestHangingQueueStopsNoOther(t *testing.T) {
	inBubble(t, outbox.RelayConfig{Batch: 10}, func(b *testBundle) {
		b.broker.slow = map[string]time.Duration{"h0": time.Hour}
		b.stage("hangs", "h0", "h1")
		stop := b.run()
		defer stop()
		time.Sleep(time.Second)
		for i := range 100 {
			b.stage(fmt.Sprint("q", i), fmt.Sprint("m", i))
		}
		time.Sleep(2 * time.Second) // polls
		b.is.Equal(len(b.broker.received()), 100)
		time.Sleep(30 * time.Second)
		b.is.Equal(b.Stats().Failed, int64(1)) // by PublishTimeout
		b.is.Equal(b.Stats().Lost, int64(0))
	})
}

func TestLongPublishRenewsItsLease(t *testing.T) {
	inBubble(t, outbox.RelayConfig{PublishTimeout: time.Hour}, func(b *testBundle) {
		b.broker.slow = map[string]time.Duration{"long": 10 * outbox.DefaultLease}
		b.stage("q", "long", "next")
		stop := b.run()
		defer stop()
		for range 10 {
			time.Sleep(outbox.DefaultLease)
			claims, err := b.memory.Claim(b.t.Context(), 10)
			b.is.NoErr(err)
			b.is.Equal(len(claims), 0)
		}
		time.Sleep(time.Second)
		b.is.Equal(b.broker.received(), []string{"long", "next"})
		b.is.Equal(b.Stats(), outbox.Stats{Published: 2})
	})
}

// A renewal that is on the wire while the part settles is answered "lost". That is
// no lost lease.
func TestCleanFinishIsNoLostLease(t *testing.T) {
	store := &troubled{}
	inBubble(t, outbox.RelayConfig{Store: store}, func(b *testBundle) {
		marked := make(chan struct{})
		store.renewed = func(renew func() error) error {
			<-marked // the request arrives when the message is settled
			err := renew()
			if !errors.Is(err, outbox.ErrLeaseLost) {
				b.t.Errorf("the store says %v", err)
			}
			return err
		}
		store.marked = func() {
			close(marked)
			time.Sleep(time.Second) // and is answered before the part is told
		}
		b.broker.slow = map[string]time.Duration{"m": outbox.DefaultLease / 2}
		b.stage("q", "m")
		b.is.Equal(b.tick(), 1)
		b.is.Equal(b.Stats(), outbox.Stats{Published: 1})
		b.is.Equal(b.logs.count("lost"), 0)
	})
}

func TestCutOffRelayStopsWhenItsLeaseMayBeOver(t *testing.T) {
	store := &troubled{}
	inBubble(t, outbox.RelayConfig{Store: store, PublishTimeout: time.Hour}, func(b *testBundle) {
		b.broker.slow = map[string]time.Duration{"m": time.Hour}
		b.stage("q", "m", "n")
		done := make(chan int)
		go func() { done <- b.tick() }()
		time.Sleep(time.Second)
		store.fail(errors.New("no route to host"))
		began := time.Now()
		b.is.Equal(<-done, 0)
		b.is.True(time.Since(began) <= outbox.DefaultLease)
		b.is.Equal(b.Stats().Lost, int64(2))
		store.fail(nil)
		b.is.Equal(b.broker.called(), []string{"m"}) // n was not begun
	})
}

func TestOutageIsSurvivedAndLoggedOnce(t *testing.T) {
	store := &troubled{}
	inBubble(t, outbox.RelayConfig{Store: store}, func(b *testBundle) {
		store.fail(errors.New("connection refused"))
		b.stage("q", "m")
		stop := b.run()
		defer stop()
		time.Sleep(time.Minute)
		b.is.True(b.Stats().StoreErrors > 30 && b.Stats().StoreErrors < 100) // at the pace of the poll
		b.is.Equal(b.logs.count("does not answer"), 1)
		store.fail(nil)
		time.Sleep(2 * time.Second)
		b.is.Equal(b.broker.received(), []string{"m"})
		b.is.Equal(b.logs.count("answers again"), 1)
	})
}

func TestPublishedIsMarkedAfterAnOutage(t *testing.T) {
	store := &troubled{}
	inBubble(t, outbox.RelayConfig{Store: store}, func(b *testBundle) {
		b.broker.all = time.Second
		b.stage("q", "m")
		done := make(chan int)
		go func() { done <- b.tick() }()
		time.Sleep(time.Second / 2)
		store.fail(errors.New("connection refused"))
		time.Sleep(10 * time.Second)
		store.fail(nil)
		b.is.Equal(<-done, 1)
		b.is.Equal(b.broker.called(), []string{"m"}) // once
	})
}

func TestStop(t *testing.T) {
	inBubble(t, outbox.RelayConfig{}, func(b *testBundle) {
		b.broker.all = time.Second
		b.stage("q", "m0", "m1", "m2")
		stop := b.run()
		time.Sleep(1500 * time.Millisecond) // in the middle of m1
		began := time.Now()
		stop()
		b.is.Equal(time.Since(began), 500*time.Millisecond)
		b.is.Equal(b.broker.received(), []string{"m0", "m1"})
		b.is.Equal(b.Stats(), outbox.Stats{Published: 2, Released: 1})
		claims, err := b.memory.Claim(b.t.Context(), 10)
		b.is.NoErr(err)
		b.is.Equal(len(claims), 1) // m2 was handed back
		b.is.Equal(claims[0].Attempt, 1)
		b.Stop() // again
		b.is.Equal(b.Run(b.t.Context()), outbox.ErrRunning)
	})
}

func TestStopBeforeRun(t *testing.T) {
	inBubble(t, outbox.RelayConfig{}, func(b *testBundle) {
		b.Stop()
		b.Stop()
		b.stage("q", "m")
		b.is.NoErr(b.Run(b.t.Context()))
		b.is.Equal(len(b.broker.called()), 0)
	})
}

func TestPanickingPublisherIsAFailure(t *testing.T) {
	panics := outbox.PublisherFunc(func(context.Context, outbox.Message) error { panic("boom") })
	inBubble(t, outbox.RelayConfig{Publisher: panics}, func(b *testBundle) {
		b.stage("q", "m")
		b.is.Equal(b.tick(), 0)
		b.is.Equal(b.Stats(), outbox.Stats{Failed: 1})
		b.is.Equal(b.logs.count("boom"), 1)
	})
}

// batches publishes in batches, up to a message that it refuses.
type batches struct {
	broker
	sizes  []int
	broken bool
}

func (p *batches) PublishBatch(ctx context.Context, messages []outbox.Message) (int, error) {
	p.sizes = append(p.sizes, len(messages))
	for i, m := range messages {
		if err := p.Publish(ctx, m); err != nil {
			if p.broken {
				return i, nil
			}
			return i, err
		}
	}
	return len(messages), nil
}

func TestBatchPublisher(t *testing.T) {
	publisher := &batches{}
	inBubble(t, outbox.RelayConfig{Publisher: publisher}, func(b *testBundle) {
		b.stage("q", "m0", "m1", "m2", "m3")
		publisher.set(map[string]error{"m2": errors.New("refused")})
		b.is.Equal(b.tick(), 2)
		b.is.Equal(b.Stats(), outbox.Stats{Published: 2, Failed: 1, Released: 1})
		publisher.broken = true
		time.Sleep(time.Minute)
		b.is.Equal(b.tick(), 0) // what it says makes no sense, so nothing of it counts
		publisher.set(nil)
		time.Sleep(time.Minute)
		b.is.Equal(b.tick(), 2)
		b.is.Equal(publisher.sizes, []int{4, 2, 2})
	})
}

func TestRelayConfigIsChecked(t *testing.T) {
	t.Parallel()
	store, err := outbox.NewMemory(outbox.StoreConfig{})
	is.New(t).NoErr(err)
	for _, config := range []outbox.RelayConfig{
		{}, {Store: store}, {Publisher: &broker{}},
		{Store: store, Publisher: &broker{}, Poll: -1},
		{Store: store, Publisher: &broker{}, Exhausted: 7},
		{Store: store, Publisher: &broker{}, Wake: make(chan struct{}), Listen: &pgx.ConnConfig{}},
	} {
		_, err := outbox.NewRelay(config)
		is.New(t).True(err != nil)
	}
}
