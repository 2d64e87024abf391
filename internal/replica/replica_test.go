package replica

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// at is a replica that has been asked, at a time since it began, when the primary and the
// standby were so far.
func (r *Replica) at(seconds int, primary, standby int64) *Replica {
	now := time.Unix(1000, 0).Add(time.Duration(seconds) * time.Second)
	r.written = append(r.written, sample{now, primary})
	r.is(r.judge(&dbgen.ServerReplayedRow{Standby: true, Position: standby}, now))
	return r
}

func bare() *Replica { return New(nil, nil, slog.New(slog.DiscardHandler)) }

func TestLag(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := bare()
	is.True(!r.Fresh("a")) // before it was asked
	for seconds, want := range []struct {
		primary, standby int64
		lag              time.Duration
	}{{100, 100, 0}, {200, 150, time.Second}, {300, 150, 2 * time.Second}, {300, 200, 2 * time.Second}, {300, 300, 0}, {300, 300, 0}} {
		lag, read := r.at(seconds, want.primary, want.standby).State()
		if lag != want.lag || !read {
			t.Errorf("after %d s: %v, %v", seconds, lag, read)
		}
	}
	// One that is stuck is not read, and what is kept of it does not grow.
	for seconds := range 5000 {
		r.at(6+seconds, 400+int64(seconds), 300)
	}
	lag, read := r.State()
	is.True(lag >= 4999*time.Second && !read && len(r.written) <= 1000)
	_, read = r.at(5006, 5400, 5400).State()
	is.True(read)
	r.is(r.judge(&dbgen.ServerReplayedRow{Standby: false}, time.Unix(9000, 0)))
	_, read = r.State()
	is.True(!read)
}

func TestWhoWroteIsShownIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := bare().at(0, 100, 100)
	r.wrote["a"] = 150
	is.True(!r.Fresh("a") && r.Fresh("b"))
	is.True(r.at(1, 150, 150).Fresh("a"))
	is.Equal(len(r.wrote), 0)

	// Of very many, all together are remembered.
	pool := pgtest.New(t)
	r.primary = pool
	for i := range maxCallers {
		r.wrote[fmt.Sprint(i)] = 170
	}
	r.Wrote(t.Context(), "last")
	is.Equal(len(r.wrote), 1)
	is.True(!r.Fresh("nobody"))
	is.True(r.at(2, 170, 170).Fresh("nobody"))
	is.True(!r.Fresh("last"))

	// A primary that does not say how far it was is asked again.
	away, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/away")
	is.NoErr(err)
	defer away.Close()
	r.primary = away
	r.Wrote(t.Context(), "x")
	is.True(!r.Fresh("nobody"))
	var none *Replica
	none.Wrote(context.Background(), "x")
	is.True(!none.Fresh("x"))
}

// tracer calls end behind each query.
type tracer struct{ end func() }

func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (t *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) { t.end() }

// A change behind which the primary did not answer counts until the primary has said how
// far it is behind that change: what it said before does not.
func TestAChangeWhileThePrimaryIsAsked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	config := pgtest.New(t).Config()
	traced := &tracer{end: func() {}}
	config.ConnConfig.Tracer = traced
	primary, err := pgxpool.NewWithConfig(t.Context(), config)
	is.NoErr(err)
	defer primary.Close()
	r := New(primary, primary, slog.New(slog.DiscardHandler))
	gone, leave := context.WithCancel(t.Context())
	leave()
	var once sync.Once
	traced.end = func() { once.Do(func() { r.Wrote(gone, "a") }) }
	r.ask(t.Context())
	is.Equal(r.floor, int64(unknown))
	r.ask(t.Context())
	is.True(r.floor < unknown)
}

// What is no standby of the primary is never read.
func TestAnotherDatabaseIsNotRead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	one, another := pgtest.New(t), pgtest.New(t)
	for _, standby := range []*pgxpool.Pool{one, another} { // a primary, and another database
		r := New(one, standby, slog.New(slog.DiscardHandler))
		r.ask(t.Context())
		is.True(!r.Fresh("a"))
	}
	// Nobody needs a right for asking.
	conn, err := one.Acquire(t.Context())
	is.NoErr(err)
	defer conn.Release()
	role := "asks_" + fmt.Sprint(time.Now().UnixNano())
	_, err = conn.Exec(t.Context(), "CREATE ROLE "+role)
	is.NoErr(err)
	defer func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), "RESET ROLE; DROP ROLE "+role)
		is.NoErr(err)
	}()
	_, err = conn.Exec(t.Context(), "SET ROLE "+role)
	is.NoErr(err)
	_, err = queries.ServerIdentity(t.Context(), conn)
	is.NoErr(err)
	_, err = queries.ServerPosition(t.Context(), conn)
	is.NoErr(err)
	_, err = queries.ServerReplayed(t.Context(), conn)
	is.NoErr(err)
}
