package server

import (
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/internal/settings"
	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/publish/deliverypub"
)

// newRelay returns the relay of the outbox that was asked for; nil for none.
func newRelay(target string, pool *pgxpool.Pool, listen *pgx.ConnConfig, log *slog.Logger) (*outbox.Relay, error) {
	if target != settings.RelayWebhooks {
		return nil, nil
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
