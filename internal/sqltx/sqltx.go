// Package sqltx lets a transaction of database/sql stand in for one of pgx, as far as
// enqueueing and staging need it, so that there is one of each and not two.
package sqltx

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tx is what enqueueing needs of a transaction. *sql.Tx is one, and so are those of sqlx,
// bun, ent and GORM. Commit and Rollback are never called: they keep out what is none,
// such as a *sql.DB, whose statements would each go their own way.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Commit() error
	Rollback() error
}

// Pgx returns tx as a pgx.Tx that has Exec, Query, QueryRow and SendBatch, and nothing
// else. Statements of a batch go out one by one.
func Pgx(tx Tx) pgx.Tx { return &transaction{tx: tx} }

type transaction struct {
	pgx.Tx // nil

	tx Tx
}

func (t *transaction) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	_, err := t.tx.ExecContext(ctx, query, arguments(args)...)
	return pgconn.CommandTag{}, asPgError(err)
}

func (t *transaction) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	list, err := t.tx.QueryContext(ctx, query, arguments(args)...) //nolint:rowserrcheck // whoever reads the rows asks them
	if err != nil {
		return &rows{err: asPgError(err)}, asPgError(err)
	}
	return &rows{rows: list}, nil
}

func (t *transaction) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	list, err := t.Query(ctx, query, args...)
	return row{list, err}
}

func (t *transaction) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return &batch{ctx: ctx, t: t, queued: b.QueuedQueries}
}

// batch runs its statements when it is closed, or asked for their results.
type batch struct {
	pgx.BatchResults // nil

	ctx    context.Context
	t      *transaction
	queued []*pgx.QueuedQuery
}

func (b *batch) next() *pgx.QueuedQuery {
	q := b.queued[0]
	b.queued = b.queued[1:]
	return q
}

func (b *batch) Exec() (pgconn.CommandTag, error) {
	q := b.next()
	return b.t.Exec(b.ctx, q.SQL, q.Arguments...)
}

func (b *batch) Query() (pgx.Rows, error) {
	q := b.next()
	return b.t.Query(b.ctx, q.SQL, q.Arguments...)
}

func (b *batch) QueryRow() pgx.Row {
	q := b.next()
	return b.t.QueryRow(b.ctx, q.SQL, q.Arguments...)
}

// Close runs what is left, and ends with the first error.
func (b *batch) Close() error {
	for len(b.queued) > 0 {
		var err error
		if read := b.queued[0].Fn; read != nil {
			err = read(b)
		} else {
			_, err = b.Exec()
		}
		if err != nil {
			b.queued = nil
			return err
		}
	}
	return nil
}

// asPgError makes an error of any driver one that tells its SQLSTATE as those of pgx do.
func asPgError(err error) error {
	var pg *pgconn.PgError
	var other interface{ SQLState() string }
	if err == nil || errors.As(err, &pg) || !errors.As(err, &other) {
		return err
	}
	return &stateError{err, &pgconn.PgError{Code: other.SQLState(), Message: err.Error()}}
}

type stateError struct {
	error

	pg *pgconn.PgError
}

func (e *stateError) Unwrap() []error { return []error{e.error, e.pg} }
