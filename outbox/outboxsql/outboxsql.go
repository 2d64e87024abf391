// Package outboxsql stages messages in transactions of database/sql, hence of sqlx, bun,
// ent and GORM, by whatever driver: pgx's own or lib/pq. See package deliverysql for how
// to get at the transaction of each.
package outboxsql

import (
	"context"
	"database/sql"

	"github.com/postlane-go/postlane/internal/sqltx"
	"github.com/postlane-go/postlane/outbox"
)

// Tx is a transaction. A *sql.Tx is one; a *sql.DB is none, and does not compile.
// Commit and Rollback are never called: they keep out what is none.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Commit() error
	Rollback() error
}

// Stage is outbox.Stage in a transaction of database/sql.
func Stage(ctx context.Context, tx Tx, messages ...outbox.Message) ([]outbox.Staged, error) {
	if tx == nil {
		return nil, outbox.ErrNoTx
	}
	return outbox.Stage(ctx, sqltx.Pgx(tx), messages...)
}
