package delivery_test

import (
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// Why there is a sequence: under migration 0004 alone two events of one transaction have
// the same created_at, and the event's id, which says nothing about order, breaks the
// tie. 0035 puts what is there in that order, and what comes in the order it was written.
func TestTheTieThatTheSequenceBreaks(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	pool := pgtest.NewEmpty(t)
	to := func(names ...string) {
		files := fstest.MapFS{}
		for _, name := range names {
			content, err := fs.ReadFile(db.Schema(), name)
			is.NoErr(err)
			files[name] = &fstest.MapFile{Data: content}
		}
		_, err := migrate.Up(ctx, pool.Config().ConnConfig.Copy(), files, migrate.Config{})
		is.NoErr(err)
		pool.Reset()
	}
	list := func(sql string) []string {
		rows, err := pool.Query(ctx, sql)
		is.NoErr(err)
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		is.NoErr(err)
		return got
	}

	to("0004_webhooks.sql")
	_, err := pool.Exec(ctx, "INSERT INTO postlane.subscriptions (id, tenant, url) VALUES (1, 'acme', 'http://127.0.0.1:8099/')")
	is.NoErr(err)
	written := []string{"evt_9", "evt_5", "evt_1"} // the order in which the transaction writes them
	is.NoErr(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, id := range written {
			_, err := tx.Exec(ctx, "INSERT INTO postlane.events (tenant, id, type, asset, content_type, payload) VALUES ('acme', $1, 't', 'a', 'text/plain', '')", id)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "INSERT INTO postlane.deliveries (subscription_id, tenant, event_id, event_type, asset) VALUES (1, 'acme', $1, 't', 'a')", id)
			if err != nil {
				return err
			}
		}
		return nil
	}))
	is.Equal(list("SELECT count(DISTINCT created_at)::text FROM postlane.deliveries"), []string{"1"}) // the tie
	tied := list("SELECT event_id FROM postlane.deliveries ORDER BY created_at, event_id")            // the order of 0004
	is.True(!slices.Equal(tied, written))                                                             // is not the order of writing

	to("0004_webhooks.sql", "0035_delivery_sequence.sql")
	is.Equal(list("SELECT event_id FROM postlane.deliveries ORDER BY seq"), tied) // what was, stays

	_, err = migrate.Up(ctx, pool.Config().ConnConfig.Copy(), db.Schema(), migrate.Config{})
	is.NoErr(err)
	pool.Reset()
	b := setupOn(t, pool, delivery.StoreConfig{})
	is.NoErr(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, id := range written {
			e := named("new_"+id, "a")
			if _, err := delivery.Enqueue(ctx, tx, e); err != nil {
				return err
			}
		}
		return nil
	}))
	b.exec("UPDATE postlane.deliveries SET created_at = now() WHERE event_id LIKE 'new%'") // they tie as before
	var got []string
	for range 6 {
		claims := b.claim(10)
		is.Equal(len(claims), 1)
		got = append(got, claims[0].EventID)
		b.settle(delivery.Succeeded, claims...)
		_, err := b.store.Park(ctx, 100)
		is.NoErr(err)
	}
	is.Equal(got, append(tied, "new_evt_9", "new_evt_5", "new_evt_1"))
}
