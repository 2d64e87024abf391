package sqlexamples

import (
	"context"

	"gorm.io/gorm"

	"github.com/postlane-go/postlane/delivery/deliverysql"
	"github.com/postlane-go/postlane/outbox/outboxsql"
)

type gormInvoice struct {
	ID   string `gorm:"primaryKey"`
	Paid bool
}

// TableName is GORM's name for the table.
func (gormInvoice) TableName() string { return "invoices" }

// PayWithGORM is for GORM. Within Transaction its ConnPool is the transaction, which
// satisfies both Tx interfaces.
func PayWithGORM(ctx context.Context, db *gorm.DB, id string) error {
	return db.WithContext(ctx).Transaction(func(db *gorm.DB) error {
		if err := db.Save(&gormInvoice{ID: id, Paid: true}).Error; err != nil {
			return err
		}
		tx := db.Statement.ConnPool.(deliverysql.Tx)
		if _, err := deliverysql.Enqueue(ctx, tx, paid(id)); err != nil {
			return err
		}
		_, err := outboxsql.Stage(ctx, tx, receipt(id))
		return err
	})
}
