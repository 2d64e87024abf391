package sqlexamples

import (
	"context"

	"github.com/postlane-go/postlane/delivery/deliverysql"
	"github.com/postlane-go/postlane/examples/sql/ent"
	"github.com/postlane-go/postlane/outbox/outboxsql"
)

// PayWithEnt is for ent, generated with --feature sql/execquery.
func PayWithEnt(ctx context.Context, client *ent.Client, id string) error {
	tx, err := client.Tx(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := tx.Invoice.UpdateOneID(id).SetPaid(true).Exec(ctx); err != nil {
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
