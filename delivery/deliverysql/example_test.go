package deliverysql_test

import (
	"context"
	"database/sql"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/deliverysql"
)

// In the transaction that changes the invoice, with any driver for PostgreSQL.
func Example() {
	pay := func(ctx context.Context, db *sql.DB, id string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, "UPDATE invoices SET paid = true WHERE id = $1", id); err != nil {
			return err
		}
		if _, err := deliverysql.Enqueue(ctx, tx, delivery.Event{
			Tenant: "acme", Type: "invoice.paid", Asset: "invoice-" + id, Payload: []byte(`{"paid":true}`),
		}); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = pay
}
