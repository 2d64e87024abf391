package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// firstWithTraffic is the migration from which on every later one runs beside traffic.
const firstWithTraffic = "0061_from_sql.sql"

// Every later migration runs on a filled database while others enqueue, some of them in
// transactions that stay open. An enqueue gives up after half a second of waiting for a
// lock, so that none fails says that none waited for longer.
func TestLaterMigrationsOfAFilledDatabaseLetEnqueueGoOn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.EmptyURL(t)
	_, err := migrate.Up(t.Context(), connConfig(t, url), upTo(t, firstWithTraffic), migrate.Config{})
	is.NoErr(err)
	conn := connect(t, url)
	exec(t, conn, "INSERT INTO postlane.subscriptions (tenant, url) SELECT 'acme', 'https://example.com/' || i FROM generate_series(1, 2) i")
	const filled = 10_000
	exec(t, conn, fmt.Sprintf("SELECT postlane.enqueue('acme', 'thing.done', '{}'::text, i::text) FROM generate_series(1, %d) i", filled))
	exec(t, conn, `INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, asset, created_at, settled_at, attempts, state)
		SELECT subscription_id, seq, tenant, event_id, event_type, asset, now() AS created_at, now() AS settled_at, 1, 'delivered' FROM postlane.deliveries WHERE seq % 2 = 0`)
	exec(t, conn, "DELETE FROM postlane.deliveries WHERE seq % 2 = 0")

	var enqueued atomic.Int64
	traffic, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	for _, openFor := range []string{"0", "0", "0.02"} {
		c := connect(t, url)
		running.Go(func() {
			for traffic.Err() == nil {
				err := pgx.BeginFunc(t.Context(), c, func(tx pgx.Tx) error {
					_, err := tx.Exec(t.Context(), "SELECT postlane.enqueue('acme', 'thing.done', '{}'::text), pg_sleep("+openFor+")")
					return err
				})
				if replaced(err) {
					continue
				}
				if err != nil {
					t.Errorf("after %d enqueues: %v", enqueued.Load(), err)
					return
				}
				enqueued.Add(1)
			}
		})
	}
	for enqueued.Load() < 10 && !t.Failed() {
		until(t, conn, "SELECT pg_sleep(0.001) IS NOT NULL")
	}
	_, err = migrate.Up(t.Context(), connConfig(t, url), db.Schema(), migrate.Config{})
	is.NoErr(err)
	stop()
	running.Wait()
	is.Equal(column(t, url, "SELECT count(*)::text FROM postlane.events"), []string{strconv.FormatInt(filled+enqueued.Load(), 10)})
}

// replaced tells of a call of a function that a migration replaced at that moment.
func replaced(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "XX000" && strings.HasPrefix(pg.Message, "cache lookup failed for function")
}

// A migration that cannot have a table for long lets those who come after it through
// before they give up.
func TestAMigrationThatWaitsFailsNoEnqueue(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	is.NoErr(err)
	defer pool.Close()
	observer := connect(t, url)
	enqueue := func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SELECT postlane.enqueue('acme', 'thing.done', '{}'::text)")
		return err
	}
	holder, err := pool.Begin(t.Context())
	is.NoErr(err)
	defer holder.Rollback(context.Background())
	is.NoErr(enqueue(holder))

	steppedBack := make(chan migrate.Step)
	done := make(chan error)
	go func() {
		_, err := migrate.Up(t.Context(), connConfig(t, url), files{"9999_busy.sql": "ALTER TABLE postlane.events ADD COLUMN m int;"}.fs(), migrate.Config{
			Progress: func(s migrate.Step) {
				if s.Wait != nil {
					steppedBack <- s
				}
			},
		})
		close(steppedBack)
		done <- err
	}()
	for range 3 {
		until(t, observer, "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'postlane.events'::regclass AND NOT granted)")
		enqueued := make(chan error)
		go func() { enqueued <- pgx.BeginFunc(t.Context(), pool, enqueue) }()
		<-steppedBack
		is.NoErr(<-enqueued)
	}
	is.NoErr(holder.Commit(t.Context()))
	for range steppedBack {
		continue
	}
	is.NoErr(<-done)
}
