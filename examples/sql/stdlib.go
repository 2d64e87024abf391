package sqlexamples

import (
	"context"
	"database/sql"

	"github.com/postlane-go/postlane/delivery/deliverysql"
	"github.com/postlane-go/postlane/outbox/outboxsql"
)

// PayWithSQL is for database/sql as it is.
func PayWithSQL(ctx context.Context, db *sql.DB, id string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "UPDATE invoices SET paid = true WHERE id = $1", id); err != nil {
		return err
	}
	if _, err := deliverysql.Enqueue(ctx, tx, paid(id)); err != nil {
		return err
	}
	if _, err := outboxsql.Stage(ctx, tx, receipt(id)); err != nil {
		return err
	}
	return tx.Commit()
}
