package wake_test

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/wake"
)

// testBundle is a running Hub on a database of the test's own, and a session
// beside it.
type testBundle struct {
	*wake.Hub
	is       *is.I
	t        *testing.T
	signals  map[wake.Word]<-chan struct{} // of each word, since before it ran
	logs     logs
	connects atomic.Int32
	other    *pgx.Conn
	stop     func() // ends the Hub and waits for it
}

// setup runs a Hub until the end of the test, quick to notice and to try again.
func setup(t *testing.T, config wake.Config) *testBundle {
	t.Helper()
	return setupAt(t, database(t), config)
}

// database returns the address of a new database.
func database(t *testing.T) *pgx.ConnConfig {
	t.Helper()
	address, err := pgx.ParseConfig(pgtest.EmptyURL(t))
	is.New(t).NoErr(err)
	return address
}

func setupAt(t *testing.T, address *pgx.ConnConfig, config wake.Config) *testBundle {
	t.Helper()
	b := &testBundle{is: is.New(t), t: t, logs: make(logs, 100)}
	config.Logger = slog.New(b.logs)
	config.Backoff, config.MaxBackoff = 5*time.Millisecond, 40*time.Millisecond
	if config.Connect == nil {
		to := cmp.Or(config.Conn, address).Copy()
		to.RuntimeParams["application_name"] = t.Name()
		config.Connect = func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, to) }
		config.Conn = nil
	}
	connect := config.Connect
	config.Connect = func(ctx context.Context) (*pgx.Conn, error) {
		b.connects.Add(1)
		return connect(ctx)
	}
	var err error
	b.Hub, err = wake.New(config)
	b.is.NoErr(err)
	b.signals = map[wake.Word]<-chan struct{}{}
	for _, word := range []wake.Word{wake.Delivery, wake.Subscription, wake.Message} {
		b.signals[word], _ = b.Subscribe(word)
	}
	b.other, err = pgx.ConnectConfig(t.Context(), address)
	b.is.NoErr(err)
	t.Cleanup(func() { b.other.Close(context.Background()) })

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	b.stop = func() { cancel(); <-done }
	t.Cleanup(b.stop)
	go func() { defer close(done); b.Run(ctx) }()
	return b
}

// notify sends words as one producer's transaction each.
func (b *testBundle) notify(words ...wake.Word) {
	b.t.Helper()
	for _, word := range words {
		_, err := b.other.Exec(b.t.Context(), "SELECT pg_notify($1, $2)", wake.Channel, string(word))
		b.is.NoErr(err)
	}
}

// await fails the test if there is no signal in good time.
func await[T any](t *testing.T, signals <-chan T) T {
	t.Helper()
	select {
	case s := <-signals:
		return s
	case <-time.After(time.Minute):
		t.Fatal("waited a minute for a signal")
		panic("unreachable")
	}
}

// logs passes on the text of each record.
type logs chan string

func (l logs) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (l logs) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l logs) WithGroup(string) slog.Handler                    { return l }
func (l logs) Handle(_ context.Context, r slog.Record) error {
	text := []string{r.Level.String(), r.Message}
	r.Attrs(func(a slog.Attr) bool { text = append(text, a.String()); return true })
	l <- strings.Join(text, " ")
	return nil
}
