package delivery_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
)

// Events whose times are not in the order of their seqs, for the clock was behind, do not
// hide what was written around them.
func TestReplayAroundAWrongClock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	began := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	// One a minute, and in the middle, where the search for the beginning looks first,
	// those whose times are before all others.
	b.exec(`INSERT INTO postlane.events (seq, tenant, id, type, content_type, payload, created_at)
		SELECT n, $1, 'e' || n, 'thing.changed', 'application/json', '{}',
		       $2::timestamptz + CASE WHEN n NOT BETWEEN 1900 AND 2100 THEN n * interval '1 minute' ELSE interval '0' END
		FROM generate_series(1, 4000) n`, tenant, began)
	b.exec(`SELECT setval('postlane.delivery_seq', 4000)`)
	r := delivery.ReplayRequest{Subscription: sub, ID: "one", Since: began.Add(1000 * time.Minute), Until: began.Add(3000 * time.Minute)}
	counted, err := b.store.CountReplay(b.ctx, r)
	b.is.NoErr(err)
	b.is.Equal(counted.Events, int64(1799))
	b.is.Equal(b.replay(r).Deliveries, int64(1799))

	// Nor do those of a clock that was ahead.
	b.exec("UPDATE postlane.events SET created_at = created_at + interval '100 days' WHERE seq BETWEEN 1900 AND 2100")
	r.ID = "two"
	b.is.Equal(b.replay(r).Deliveries, int64(1799))
}

// An event is of the time at which it was written, whenever its transaction began: so
// nothing that a transaction wrote that was open for long hides what was written around
// it, nor is hidden.
func TestEventsAreOfTheTimeAtWhichTheyWereWritten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	for name, enqueue := range map[string]func(pgx.Tx) error{
		"Enqueue": func(tx pgx.Tx) error { _, err := delivery.Enqueue(b.ctx, tx, event("long")); return err },
		"SQL": func(tx pgx.Tx) error {
			_, err := tx.Exec(b.ctx, "SELECT postlane.enqueue($1, 'thing.changed', '{}', asset => 'long')", tenant)
			return err
		},
	} {
		long, err := b.pool.Begin(b.ctx)
		b.is.NoErr(err)
		defer func() { _ = long.Rollback(b.ctx) }()
		_, err = long.Exec(b.ctx, "SELECT now()")
		b.is.NoErr(err)
		before := b.enqueue("short")[0]
		b.is.NoErr(enqueue(long))
		b.is.NoErr(long.Commit(b.ctx))
		b.is.Equal(one[bool](b, "SELECT bool_and(created_at > (SELECT created_at FROM postlane.events WHERE id = $1)) FROM postlane.events WHERE asset = 'long'", before.ID), true)
		b.is.Equal(one[bool](b, "SELECT bool_and(created_at > (SELECT created_at FROM postlane.deliveries WHERE event_id = $1)) FROM postlane.deliveries WHERE asset = 'long'", before.ID), true)
		r := replayOf(sub, name)
		r.Since = one[time.Time](b, "SELECT created_at FROM postlane.events WHERE id = $1", before.ID)
		b.is.Equal(b.replay(r).Now, int64(2))
		b.exec("DELETE FROM postlane.deliveries; DELETE FROM postlane.events")
	}
}
