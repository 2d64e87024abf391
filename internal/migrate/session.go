package migrate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postlane-go/postlane/internal/pooler"
)

// lockKey is the advisory lock of whoever migrates. Such locks are a
// database's own, so two databases of one server migrate independently.
const lockKey int64 = 0x706f73746c616e65 // "postlane"

var errOther = errors.New("another process is migrating this database")

// ErrPooled says why: the lock of whoever migrates is a session's.
var ErrPooled = errors.New("migrations need a session of their own, and the address leads through a pooler in transaction mode: " +
	"give the address of PostgreSQL itself (-database-url), or of a pooler in session mode")

// session is the one connection that holds the lock and runs the migrations.
type session struct {
	address *pgx.ConnConfig
	config  Config
	conn    *pgx.Conn // holds the lock
}

// open connects and waits for the lock.
func open(ctx context.Context, address *pgx.ConnConfig, config Config) (*session, error) {
	s := &session{address: address, config: config}
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	if err := s.try(ctx, "", s.createTable); err != nil {
		s.close()
		return nil, fmt.Errorf("create the table of versions: %w", err)
	}
	return s, nil
}

// connect connects and waits for the lock by asking again and again. A session
// that waits inside of pg_advisory_lock holds a snapshot, CREATE INDEX
// CONCURRENTLY of the lock's holder waits for every older snapshot, and so the
// two would wait for each other.
func (s *session) connect(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, s.address)
	if err != nil {
		return fmt.Errorf("connect to migrate: %w", err)
	}
	connect := func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, s.address) }
	if shared, err := pooler.Shared(ctx, conn, connect); err == nil && shared {
		closeConn(conn)
		return ErrPooled
	}
	// If this process is killed, its migration ends too, instead of holding
	// the lock until it is done. Not every system's server can tell, hence no
	// error.
	_, _ = conn.Exec(ctx, "SET client_connection_check_interval = '1s'")
	told := false
	for {
		var locked bool
		err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", lockKey).Scan(&locked)
		if err != nil {
			closeConn(conn)
			return fmt.Errorf("take the lock to migrate: %w", err)
		}
		if locked {
			s.conn = conn
			return nil
		}
		if !told {
			s.config.Progress(Step{Wait: errOther})
			told = true
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			closeConn(conn)
			return errors.Join(errOther, err)
		}
	}
}

// close gives the lock back, even if the context has ended. Closing alone would
// do, but a while later: the server does not answer a goodbye.
func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	// A broken connection has no lock any more.
	_, _ = s.conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", lockKey)
	_ = s.conn.Close(ctx)
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// try runs an action until it succeeds, fails for good or patience has run out,
// on a new connection with a lock of its own where the old one has broken.
func (s *session) try(ctx context.Context, name string, action func(context.Context) error) error {
	deadline := time.Now().Add(s.config.Patience)
	for attempt := 1; ; attempt++ {
		err := error(nil)
		if s.conn.IsClosed() {
			err = s.connect(ctx)
		}
		if err == nil {
			err = action(ctx)
		}
		if err == nil {
			return nil
		}
		rest, passes := s.passes(err, attempt)
		if ctx.Err() != nil || !passes {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("gave up after %d tries in %v: %w", attempt, s.config.Patience, err)
		}
		s.config.Progress(Step{File: name, Wait: err})
		if err := pause(ctx, rest/2+rand.N(rest)); err != nil {
			return err
		}
	}
}

// passes tells whether an error may be gone at the next try, and about how long
// to rest before it.
func (s *session) passes(err error, attempt int) (rest time.Duration, yes bool) {
	const soon = 250 * time.Millisecond
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		// The connection broke, or the server is not back yet.
		return soon, s.conn.IsClosed()
	}
	switch pgErr.Code {
	case "55P03", "40P01": // lock_not_available: lock_timeout; deadlock_detected
		// Whoever waited behind us gets on with it first.
		return min(time.Duration(attempt)*s.config.LockTimeout/2, 10*time.Second), true
	case "57P01", "57P02", "57P03", "53300": // the server restarts, or is full
		return soon, true
	}
	return 0, false
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (s *session) createTable(ctx context.Context) error {
	// Looked up first: creating, even IF NOT EXISTS, takes a right that a
	// database which has the table need not grant.
	var exists bool
	if err := s.conn.QueryRow(ctx, "SELECT to_regclass('public.schema_migrations') IS NOT NULL").Scan(&exists); err != nil || exists {
		return err
	}
	_, err := s.conn.Exec(ctx, "CREATE TABLE public.schema_migrations (version varchar PRIMARY KEY)")
	return err
}

// checkEncoding refuses a database that keeps text in another encoding: a program that
// says nothing of its own, as pgx, and one that does would read each other's names wrong.
func (s *session) checkEncoding(ctx context.Context) error {
	var encoding string
	err := s.try(ctx, "", func(ctx context.Context) error {
		return s.conn.QueryRow(ctx, "SELECT getdatabaseencoding()").Scan(&encoding)
	})
	if err != nil {
		return fmt.Errorf("ask for the database's encoding: %w", err)
	}
	if encoding != "UTF8" {
		return fmt.Errorf("the database's encoding is %s, and Postlane keeps text as UTF8: use a database made with ENCODING 'UTF8'", encoding)
	}
	return nil
}

// applied returns the versions that the database has.
func (s *session) applied(ctx context.Context) (map[string]bool, error) {
	var found map[string]bool
	err := s.try(ctx, "", func(ctx context.Context) (err error) {
		found, err = versions(ctx, s.conn)
		return err
	})
	return found, err
}

func versions(ctx context.Context, db Querier) (map[string]bool, error) {
	found := map[string]bool{}
	rows, err := db.Query(ctx, "SELECT version FROM public.schema_migrations")
	if err == nil {
		var version string
		_, err = pgx.ForEachRow(rows, []any{&version}, func() error {
			found[version] = true
			return nil
		})
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == "42P01" { // undefined_table
		return found, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the applied migrations: %w", err)
	}
	return found, nil
}

// apply runs one migration in one direction and records it.
func (s *session) apply(ctx context.Context, f file, down bool) error {
	part, direction := f.up, "up"
	record := "INSERT INTO public.schema_migrations (version) VALUES ($1)"
	if down {
		part, direction = f.down, "down"
		record = "DELETE FROM public.schema_migrations WHERE version = $1"
	}
	run := s.inTransaction
	if !part.transaction {
		run = s.bare
	}
	var took time.Duration
	err := s.try(ctx, f.name, func(ctx context.Context) error {
		// After a broken connection it may be recorded already: by the commit
		// whose answer was lost, or by whoever had the lock in between.
		applied, err := versions(ctx, s.conn)
		if err != nil {
			return err
		}
		if applied[f.version] == !down {
			return nil
		}
		start := time.Now()
		err = run(ctx, part.sql, record, f.version)
		took = time.Since(start)
		return err
	})
	if err != nil {
		return fmt.Errorf("migration %s, %s: %w", place(f.name, part, err), direction, err)
	}
	s.config.Progress(Step{File: f.name, Down: down, Took: took})
	return nil
}

func (s *session) inTransaction(ctx context.Context, sql, record, version string) error {
	return pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		limit := strconv.FormatInt(s.config.LockTimeout.Milliseconds(), 10)
		if _, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true)", limit); err != nil {
			return err
		}
		if sql != "" {
			if err := simple(ctx, s.conn, sql); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, record, version)
		return err
	})
}

// bare runs a single statement outside of a transaction. Where the process was
// killed between the statement and its record the statement runs again at the
// next try, so it should allow that (IF NOT EXISTS).
func (s *session) bare(ctx context.Context, sql, record, version string) error {
	if err := s.dropInvalid(ctx, sql); err != nil {
		return err
	}
	if err := simple(ctx, s.conn, sql); err != nil {
		return err
	}
	_, err := s.conn.Exec(ctx, record, version)
	return err
}

// dropInvalid drops what a CREATE INDEX CONCURRENTLY that was broken off left:
// an invalid index, which would fail the next try or, with IF NOT EXISTS, pass
// for the real one.
func (s *session) dropInvalid(ctx context.Context, sql string) error {
	rows, err := s.conn.Query(ctx, `
		SELECT n.nspname, c.relname
		FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE NOT i.indisvalid AND $1 ~* ('\mindex\M.*\m' || c.relname || '\M')`, sql)
	if err != nil {
		return err
	}
	invalid, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (name pgx.Identifier, err error) {
		name = make(pgx.Identifier, 2)
		return name, row.Scan(&name[0], &name[1])
	})
	if err != nil {
		return err
	}
	for _, name := range invalid {
		if _, err := s.conn.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+name.Sanitize()); err != nil {
			return err
		}
	}
	return nil
}

// simple runs a text of statements as it is.
func simple(ctx context.Context, conn *pgx.Conn, sql string) error {
	return conn.PgConn().Exec(ctx, sql).Close()
}

// place returns where in a file an error is: its name, and the line if
// PostgreSQL told it.
func place(name string, part section, err error) string {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Position <= 0 || int(pgErr.Position) > utf8.RuneCountInString(part.sql) {
		return name
	}
	before := string([]rune(part.sql)[:pgErr.Position-1])
	return name + ":" + strconv.Itoa(part.line+strings.Count(before, "\n"))
}
