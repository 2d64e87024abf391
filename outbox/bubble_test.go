package outbox_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
