package deliverypub_test

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/publish/deliverypub"
)

// A relay publishes what is staged in the outbox as webhook events.
func Example() {
	run := func(ctx context.Context, pool *pgxpool.Pool) error {
		store, err := outbox.NewPostgres(pool, outbox.StoreConfig{})
		if err != nil {
			return err
		}
		publisher, err := deliverypub.New(pool, deliverypub.Config{})
		if err != nil {
			return err
		}
		relay, err := outbox.NewRelay(outbox.RelayConfig{Store: store, Publisher: publisher})
		if err != nil {
			return err
		}
		return relay.Run(ctx) // until ctx ends
	}
	_ = run
}
