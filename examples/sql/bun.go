package sqlexamples

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/postlane-go/postlane/delivery/deliverysql"
	"github.com/postlane-go/postlane/outbox/outboxsql"
)

type bunInvoice struct {
	bun.BaseModel `bun:"table:invoices"`

	ID   string `bun:",pk"`
	Paid bool
}

// PayWithBun is for bun. What is passed on is the sql.Tx within: bun's own methods would
// read the question marks of a statement.
func PayWithBun(ctx context.Context, db *bun.DB, id string) error {
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewUpdate().Model(&bunInvoice{ID: id, Paid: true}).WherePK().Exec(ctx); err != nil {
			return err
		}
		if _, err := deliverysql.Enqueue(ctx, tx.Tx, paid(id)); err != nil {
			return err
		}
		_, err := outboxsql.Stage(ctx, tx.Tx, receipt(id))
		return err
	})
}
