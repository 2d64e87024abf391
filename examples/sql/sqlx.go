package sqlexamples

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/postlane-go/postlane/delivery/deliverysql"
	"github.com/postlane-go/postlane/outbox/outboxsql"
)

// PayWithSQLX is for sqlx.
func PayWithSQLX(ctx context.Context, db *sqlx.DB, id string) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.NamedExecContext(ctx, "UPDATE invoices SET paid = true WHERE id = :id", map[string]any{"id": id}); err != nil {
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
