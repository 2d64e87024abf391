package migrate_test

import (
	"context"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/postgres"
)

// waiting tells whether some session waits for a lock on table t.
const waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'public.t'::regclass AND NOT granted)"

// A migration that can't have a table steps back, so that whoever came after
// it gets on, and has it when it is free.
func TestBusyTable(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.EmptyURL(t)
	holder, other := connect(t, url), connect(t, url)
	exec(t, holder, "CREATE TABLE public.t (n int)")
	exec(t, holder, "BEGIN; INSERT INTO public.t VALUES (1)")

	steppedBack := make(chan migrate.Step)
	done := make(chan error)
	go func() {
		_, err := migrate.Up(t.Context(), connConfig(t, url), files{"0001_t.sql": "ALTER TABLE public.t ADD COLUMN m int;"}.fs(), migrate.Config{
			LockTimeout: 200 * time.Millisecond,
			Progress: func(s migrate.Step) {
				if s.Wait != nil {
					steppedBack <- s
				}
			},
		})
		close(steppedBack)
		done <- err
	}()
	step := <-steppedBack
	is.Equal(step.File, "0001_t.sql")
	is.True(strings.Contains(step.Wait.Error(), "lock timeout"))

	until(t, other, waiting)
	exec(t, other, "INSERT INTO public.t VALUES (2)") // queues behind the migration, for 200 ms at most
	exec(t, holder, "COMMIT")
	for range steppedBack {
		continue // however often it takes
	}
	is.NoErr(<-done)
	is.Equal(versions(t, url), []string{"0001"})
}

func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.EmptyURL(t)
	holder := connect(t, url)
	exec(t, holder, "CREATE TABLE public.t (n int)")
	exec(t, holder, "BEGIN; INSERT INTO public.t VALUES (1)")
	_, err := migrate.Up(t.Context(), connConfig(t, url), files{"0001_t.sql": "\n\nALTER TABLE public.t ADD COLUMN m int;"}.fs(), migrate.Config{
		LockTimeout: 20 * time.Millisecond, Patience: 100 * time.Millisecond,
	})
	is.True(err != nil)
	is.True(strings.HasPrefix(err.Error(), "migration 0001_t.sql, up: gave up after "))
	is.True(strings.Contains(err.Error(), "lock timeout"))
}

func TestEndedContextGivesTheLockBack(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.EmptyURL(t)
	observer := connect(t, url)
	exec(t, observer, "CREATE TABLE public.t (n int)")
	holder := connect(t, url)
	exec(t, holder, "BEGIN; LOCK TABLE public.t")
	schema := files{"0001_t.sql": "ALTER TABLE public.t ADD COLUMN m int;"}.fs()

	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error), make(chan error)
	go func() {
		_, err := migrate.Up(ctx, connConfig(t, url), schema, migrate.Config{LockTimeout: time.Minute})
		first <- err
	}()
	until(t, observer, waiting)
	waits := make(chan migrate.Step, 1)
	go func() { // waits for the first
		_, err := migrate.Up(t.Context(), connConfig(t, url), schema, migrate.Config{Progress: func(s migrate.Step) {
			select {
			case waits <- s:
			default:
			}
		}})
		second <- err
	}()
	is.Equal((<-waits).String(), "waiting: another process is migrating this database")
	cancel()
	is.True(errors.Is(<-first, context.Canceled))
	exec(t, holder, "ROLLBACK")
	is.NoErr(<-second)
	is.Equal(versions(t, url), []string{"0001"})
}

// A migration whose process is killed must not keep the lock until it is done.
func TestKilledProcessGivesTheLockBack(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.EmptyURL(t)
	observer := connect(t, url)
	exec(t, observer, "CREATE TABLE public.t (n int)")
	child := osexec.Command(os.Args[0])
	child.Env = append(os.Environ(), childURL+"="+url, childSQL+"=LOCK TABLE public.t; SELECT pg_sleep(600);")
	is.NoErr(child.Start())
	until(t, observer, "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'public.t'::regclass AND mode = 'AccessExclusiveLock' AND granted)")
	is.NoErr(child.Process.Kill())
	is.True(child.Wait() != nil)

	start := time.Now()
	_, err := migrate.Up(t.Context(), connConfig(t, url), files{"0001_t.sql": "ALTER TABLE public.t ADD COLUMN m int;"}.fs(), migrate.Config{})
	is.NoErr(err)
	is.True(time.Since(start) < 30*time.Second)
}

func TestServerRestartsMeanwhile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server, err := postgres.Start(t.Context(), postgres.Config{Dir: filepath.Join(t.TempDir(), "data"), NoSync: true, MaxConnections: 20})
	if errors.Is(err, postgres.ErrNoPostgres) {
		lacks(t, "needs a server of its own to restart: %v", err)
	}
	is.NoErr(err)
	defer server.Stop()
	url := server.URL("postgres")
	holder, observer := connect(t, url), connect(t, url)
	exec(t, holder, "CREATE TABLE public.t (n int)")
	exec(t, holder, "BEGIN; LOCK TABLE public.t")

	done := make(chan error)
	go func() {
		_, err := migrate.Up(t.Context(), connConfig(t, url), files{
			"0001_a.sql": "CREATE TABLE public.a ();",
			"0002_t.sql": "ALTER TABLE public.t ADD COLUMN m int;",
		}.fs(), migrate.Config{LockTimeout: time.Minute})
		done <- err
	}()
	until(t, observer, waiting)
	is.NoErr(server.Restart(t.Context()))
	is.NoErr(<-done)
	is.Equal(versions(t, url), []string{"0001", "0002"})
}

// CREATE INDEX CONCURRENTLY that fails leaves an invalid index, which IF NOT
// EXISTS takes for the real one.
func TestInvalidIndexIsMadeAnew(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.EmptyURL(t)
	conn := connect(t, url)
	exec(t, conn, "CREATE TABLE public.t (n int); INSERT INTO public.t VALUES (1), (1), (2)")
	schema := files{"0001_t.sql": "transaction:false\nCREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS t_n ON public.t (n);"}.fs()
	const valid = "SELECT indisvalid::text FROM pg_index WHERE indrelid = 'public.t'::regclass"

	_, err := migrate.Up(t.Context(), connConfig(t, url), schema, migrate.Config{})
	is.True(err != nil)
	is.True(strings.Contains(err.Error(), "migration 0001_t.sql, up: ERROR: could not create unique index"))
	is.Equal(column(t, url, valid), []string{"false"})

	exec(t, conn, "TRUNCATE public.t")
	_, err = migrate.Up(t.Context(), connConfig(t, url), schema, migrate.Config{})
	is.NoErr(err)
	is.Equal(column(t, url, valid), []string{"true"})
}
