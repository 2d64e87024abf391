package eventschema_test

import (
	"context"
	"errors"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/eventschema"
)

// An application holds its events to the schemas that were written by the HTTP API, in its own
// transaction.
func ExampleLoad() {
	paid := func(ctx context.Context, pool *pgxpool.Pool, store *delivery.Store, invoice []byte) error {
		schemas, err := eventschema.Load(ctx, store, "acme")
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			// … what the application changes …
			_, err := schemas.Enqueue(ctx, tx, delivery.Event{Tenant: "acme", Type: "invoice.paid", Payload: invoice})
			if refused, ok := errors.AsType[*eventschema.Error](err); ok {
				log.Print(refused) // places and keywords, no values
			}
			return err
		})
	}
	_ = paid
}
