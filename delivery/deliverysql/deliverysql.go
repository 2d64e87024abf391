// Package deliverysql enqueues events in transactions of database/sql, hence of sqlx, bun,
// ent and GORM, by whatever driver: pgx's own or lib/pq.
//
// It does what package delivery does with a pgx.Tx, in one statement after the other
// where pgx sends them in one round trip.
//
//	sqlx   the *sqlx.Tx
//	bun    the bun.Tx
//	ent    the *ent.Tx, generated with --feature sql/execquery
//	GORM   tx.Statement.ConnPool.(deliverysql.Tx), of the *gorm.DB within Transaction
//
// The module examples/sql has a program for each.
package deliverysql

import (
	"context"
	"database/sql"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/sqltx"
)

// Tx is a transaction. A *sql.Tx is one; a *sql.DB is none, and does not compile.
// Commit and Rollback are never called: they keep out what is none.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Commit() error
	Rollback() error
}

// Enqueue is delivery.Enqueue in a transaction of database/sql.
func Enqueue(ctx context.Context, tx Tx, events ...delivery.Event) ([]delivery.Enqueued, error) {
	return delivery.Enqueue(ctx, sqltx.Pgx(tx), events...)
}

// Serialize is delivery.Serialize in a transaction of database/sql.
func Serialize(ctx context.Context, tx Tx, assets ...string) error {
	return delivery.Serialize(ctx, sqltx.Pgx(tx), assets...)
}
