package server

import (
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/publish/deliverypub"
)

// RelayWebhooks is the Config.Relay that publishes staged messages as webhook events.
// Publishers that bring a broker's client along are modules of their own, for programs
// that import them.
const RelayWebhooks = "webhooks"

// newRelay returns the relay of the outbox that was asked for; nil for none.
func newRelay(target string, pool *pgxpool.Pool, listen *pgx.ConnConfig, log *slog.Logger) (*outbox.Relay, error) {
	switch target {
	case "":
		return nil, nil
	case RelayWebhooks:
	default:
		return nil, fmt.Errorf("-relay is %q; use %s, or leave it out", target, RelayWebhooks)
	}
	store, err := outbox.NewPostgres(pool, outbox.StoreConfig{})
	if err != nil {
		return nil, err
	}
	publisher, err := deliverypub.New(pool, deliverypub.Config{})
	if err != nil {
		return nil, err
	}
	return outbox.NewRelay(outbox.RelayConfig{Store: store, Publisher: publisher, Listen: listen, Logger: log})
}
