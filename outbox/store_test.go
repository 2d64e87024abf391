package outbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/outboxtest"
)

func TestPostgresKeepsTheContract(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, func(t *testing.T) outboxtest.Bed { return postgresBed(t, pgtest.New(t)) })
}

func postgresBed(t *testing.T, pool *pgxpool.Pool) outboxtest.Bed {
	return outboxtest.Bed{
		Open: func(config outbox.StoreConfig) outbox.Store {
			store, err := outbox.NewPostgres(pool, config)
			is.New(t).NoErr(err)
			return store
		},
		Begin: func(ctx context.Context) (pgx.Tx, error) { return pool.Begin(ctx) },
	}
}

func TestMemoryKeepsTheContract(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, func(t *testing.T) outboxtest.Bed {
		var store *outbox.Memory
		return outboxtest.Bed{
			Open: func(config outbox.StoreConfig) outbox.Store {
				if store != nil {
					return nil
				}
				var err error
				store, err = outbox.NewMemory(config)
				is.New(t).NoErr(err)
				return store
			},
			Begin: func(ctx context.Context) (pgx.Tx, error) { return store.Begin(ctx) },
		}
	})
}
