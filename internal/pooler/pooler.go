// Package pooler finds out what lies between a program and its PostgreSQL.
//
// A pooler in transaction mode gives each transaction whichever session is free, so
// that nothing of a session lasts: no LISTEN, no session's lock, no statement that was
// prepared by name. A pooler in session mode, or none, makes no difference.
package pooler

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrStatements says that the address leads through a pooler that does not keep what pgx prepares.
var ErrStatements = errors.New("the database is behind a pooler in transaction mode that keeps no prepared statements: " +
	"add default_query_exec_mode=cache_describe to the connection URL, or have the pooler keep them (max_prepared_statements of PgBouncer 1.21 and later)")

// within bounds what is asked here: a pooler that has no session to give may keep one waiting.
const within = 5 * time.Second

// Shared reports whether conn has its sessions transaction by transaction, in turn with
// others. connect makes another connection of its kind, which is needed only where
// something lies in between: conn's process is another than it was told.
func Shared(ctx context.Context, conn *pgx.Conn, connect func(context.Context) (*pgx.Conn, error)) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	first, err := session(ctx, conn)
	if err != nil || first == conn.PgConn().PID() {
		return false, err
	}
	other, err := connect(ctx)
	if err != nil {
		return false, err
	}
	defer other.Close(context.WithoutCancel(ctx))
	// In session mode the two have a session each, and keep it. Shared sessions are
	// mostly one and the same; on a busy pooler they change.
	var second uint32
	for range 4 {
		mine, err := session(ctx, conn)
		if err != nil {
			return false, err
		}
		theirs, err := session(ctx, other)
		if err != nil {
			return false, err
		}
		if mine != first || theirs == mine || second != 0 && theirs != second {
			return true, nil
		}
		second = theirs
	}
	return false, nil
}

// session returns the process of the session that conn has now.
func session(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	err = conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}

// CheckStatements returns ErrStatements if what the pool prepares would be lost. Any
// other answer, and a database that cannot be asked, is nil.
func CheckStatements(ctx context.Context, pool *pgxpool.Pool) error {
	config := pool.Config().ConnConfig
	mode := config.DefaultQueryExecMode
	if mode != pgx.QueryExecModeCacheStatement && mode != pgx.QueryExecModeDescribeExec {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil
	}
	defer conn.Release()
	connect := func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, config) }
	shared, err := Shared(ctx, conn.Conn(), connect)
	if err != nil || !shared {
		return nil
	}
	if mode == pgx.QueryExecModeDescribeExec {
		return ErrStatements // what it prepares has no name by which a pooler could keep it
	}
	kept, err := keepsNames(ctx, conn.Conn())
	if err != nil || kept {
		return nil
	}
	return ErrStatements
}

// keepsNames reports whether a pooler knows of the statements that are prepared through
// it: it prepares them by names of its own, in each session that they reach.
func keepsNames(ctx context.Context, conn *pgx.Conn) (bool, error) {
	const name = "postlane_probe"
	tx, err := conn.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(ctx) }() // nothing was written
	if _, err := conn.PgConn().Prepare(ctx, name, "SELECT 1", nil); err != nil {
		return false, err
	}
	var passed bool
	err = tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_prepared_statements WHERE name = $1)", pgx.QueryExecModeExec, name).Scan(&passed)
	if err != nil {
		return false, err
	}
	return !passed, conn.PgConn().Deallocate(ctx, name)
}
