package outbox_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/outbox"
)

// A message is staged in the transaction that makes the change, and a relay publishes it.
func Example() {
	ship := func(ctx context.Context, pool *pgxpool.Pool, id string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE orders SET shipped = true WHERE id = $1", id); err != nil {
				return err
			}
			_, err := outbox.Stage(ctx, tx, outbox.Message{Topic: "orders.shipped", Queue: "order-" + id, Payload: []byte(`{}`)})
			return err
		})
	}
	_ = ship
}
