package outboxsql_test

import (
	"context"
	"database/sql"

	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/outboxsql"
)

// In the transaction that ships the order, with any driver for PostgreSQL.
func Example() {
	ship := func(ctx context.Context, db *sql.DB, id string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET shipped = true WHERE id = $1", id); err != nil {
			return err
		}
		if _, err := outboxsql.Stage(ctx, tx, outbox.Message{Topic: "orders.shipped", Queue: "order-" + id, Payload: []byte(`{}`)}); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = ship
}
