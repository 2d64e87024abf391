package retention_test

import (
	"context"
	"testing"
	"time"

	"github.com/matryer/is"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/retention"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	pool := pgtest.New(t)
	store, err := delivery.NewStore(pool, delivery.StoreConfig{})
	is.NoErr(err)
	for _, sql := range []string{
		`INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, created_at, settled_at, attempts, state)
		 SELECT 1 + n % 3, n, 'acme', 'e' || n, 'a.b', now() - interval '3 days', now() - interval '3 days', 1, CASE WHEN n % 10 = 0 THEN 'dead' ELSE 'delivered' END
		 FROM generate_series(1, 2500) n`,
		`INSERT INTO postlane.events (seq, tenant, id, type, content_type, payload, created_at)
		 SELECT n, 'acme', 'e' || n, 'a.b', 'text/plain', '', now() - interval '3 days' FROM generate_series(1, 2500) n`,
		`WITH staged AS (
			INSERT INTO postlane.outbox_messages (seq, max_attempts, id, queue, topic, payload)
			SELECT n, 20, 'm' || n, 'q', 't', '' FROM generate_series(1, 2500) n RETURNING seq, id, queue)
		 INSERT INTO postlane.outbox_published (seq, claimed_at, published_at, attempts, queue, id, claimant)
		 SELECT seq, now() - interval '3 days', now() - CASE WHEN seq % 10 = 0 THEN interval '0' ELSE interval '3 days' END, 1, queue, id, 'relay' FROM staged`,
		`INSERT INTO postlane.audit (at, actor, actor_name, action) SELECT now() - interval '1 hour' * (2500 - n), 'operator', 'operator', 'test' FROM generate_series(1, 2500) n`,
		`INSERT INTO postlane.console_sessions (hash, key_hash, expires_at)
		 SELECT sha256(n::text::bytea), sha256(''), now() + interval '1 minute' * (n - 5) FROM generate_series(1, 10) n`,
	} {
		_, err := pool.Exec(ctx, sql)
		is.NoErr(err)
	}
	counted := map[string]int64{}
	c := retention.Config{Pool: pool, Store: store, Counted: func(kind string, n int64) { counted[kind] += n }}

	// Nobody said: only what is of no use to anybody goes.
	removed, err := retention.Once(ctx, c)
	is.NoErr(err)
	is.Equal(removed, retention.Removed{Sessions: 5})

	c.Keep = retention.Keep{Settled: 24 * time.Hour, Events: 24 * time.Hour, Messages: 24 * time.Hour, Audit: 1000 * time.Hour}
	stopped, stop := context.WithCancel(ctx)
	stop()
	_, err = retention.Once(stopped, c)
	is.True(err != nil)
	removed, err = retention.Once(ctx, c)
	is.NoErr(err)
	is.Equal(removed.Deliveries, int64(2250))
	is.Equal(removed.Events, int64(2500)) // their subscriptions are gone: no dead letter can be revived
	is.Equal(removed.Messages, int64(2250))
	is.True(removed.Audit >= 1499 && removed.Audit <= 1500)
	is.Equal(counted["deliveries"], int64(2250))
	is.Equal(counted["messages"], int64(2250))
	is.Equal(counted["audit"], removed.Audit)
	is.Equal(counted["sessions"], int64(5))
	again, err := retention.Once(ctx, c)
	is.NoErr(err)
	is.Equal(again, retention.Removed{})
}
