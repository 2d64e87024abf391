package outbox_test

import (
	"context"
	"testing"
	"time"

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

func TestBC05_EveryQueryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			outboxtest.Run(t, func(t *testing.T) outboxtest.Bed {
				config, err := pgxpool.ParseConfig(pgtest.URL(t))
				is.New(t).NoErr(err)
				config.ConnConfig.DefaultQueryExecMode = mode
				config.MaxConns = 8
				pool, err := pgxpool.NewWithConfig(context.Background(), config)
				is.New(t).NoErr(err)
				t.Cleanup(pool.Close)
				return postgresBed(t, pool)
			})
		})
	}
}

func TestPostgresRefusesImpossibleLeases(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	for _, lease := range []time.Duration{0, -time.Second, time.Microsecond, 1<<63 - 1} {
		_, err := outbox.NewPostgres(d.Pool, outbox.StoreConfig{Lease: &lease})
		d.is.True(err != nil)
		_, memory := outbox.NewMemory(outbox.StoreConfig{Lease: &lease})
		d.is.Equal(err.Error(), memory.Error()) // one rule, one reason
	}
}
