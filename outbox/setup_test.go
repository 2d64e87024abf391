package outbox_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/outbox"
)

// database is a bundle around a real database.
type database struct {
	*pgxpool.Pool
	is *is.I
	t  *testing.T
}

func newDatabase(t *testing.T) *database { return &database{pgtest.New(t), is.New(t), t} }

func (d *database) store(config outbox.StoreConfig) *outbox.Postgres {
	d.t.Helper()
	store, err := outbox.NewPostgres(d.Pool, config)
	d.is.NoErr(err)
	return store
}

func (d *database) stage(queue string, ids ...string) {
	d.t.Helper()
	stageIDs(d.t, d.store(outbox.StoreConfig{}), d.Begin, queue, ids...)
}

// relay runs a relay until the end of the test.
func (d *database) relay(config outbox.RelayConfig) *outbox.Relay {
	d.t.Helper()
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	relay, err := outbox.NewRelay(config)
	d.is.NoErr(err)
	done := make(chan error, 1)
	go func() { done <- relay.Run(context.Background()) }()
	d.t.Cleanup(func() { relay.Stop(); d.is.NoErr(<-done) })
	return relay
}

// arrivals is a Publisher that passes on what it gets.
type arrivals chan outbox.Message

func (a arrivals) Publish(ctx context.Context, m outbox.Message) error {
	select {
	case a <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a arrivals) await(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		select {
		case m := <-a:
			if m.ID != id {
				t.Fatalf("%s arrived, not %s", m.ID, id)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s did not arrive in a minute", id)
		}
	}
}

func stageIDs(t *testing.T, store outbox.Store, begin func(context.Context) (pgx.Tx, error), queue string, ids ...string) {
	t.Helper()
	is := is.New(t)
	tx, err := begin(t.Context())
	is.NoErr(err)
	for _, id := range ids {
		_, err := store.Stage(t.Context(), tx, outbox.Message{ID: id, Topic: "t", Queue: queue, Payload: []byte(id)})
		is.NoErr(err)
	}
	is.NoErr(tx.Commit(t.Context()))
}
