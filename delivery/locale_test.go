package delivery_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// setupLocale is setup on a database that was created with options.
func setupLocale(t *testing.T, options string) *bundle {
	t.Helper()
	is := is.New(t)
	beside := pgtest.EmptyURL(t)
	conn, err := pgx.Connect(t.Context(), beside)
	is.NoErr(err)
	t.Cleanup(func() { is.NoErr(conn.Close(context.Background())) })
	name := conn.Config().Database + "_x"
	_, err = conn.Exec(t.Context(), fmt.Sprintf("CREATE DATABASE %s TEMPLATE template0 %s", name, options))
	is.NoErr(err)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		is.NoErr(err)
	})
	address, err := url.Parse(beside)
	is.NoErr(err)
	address.Path = "/" + name
	pool, err := pgxpool.New(context.Background(), address.String())
	is.NoErr(err)
	t.Cleanup(pool.Close)
	_, err = migrate.Up(t.Context(), pool.Config().ConnConfig, db.Schema(), migrate.Config{})
	is.NoErr(err)
	return setupOn(t, pool, delivery.StoreConfig{})
}

// icu is a collation by which letters sort beside each other whatever their case.
const icu = "LOCALE_PROVIDER icu ICU_LOCALE 'de-DE' LC_COLLATE 'C' LC_CTYPE 'C'"

// Keys compare as bytes, whatever the database's own collation is.
func TestADatabaseOfAnotherCollation(t *testing.T) {
	t.Parallel()
	b := setupLocale(t, icu)
	if !one[bool](b, "SELECT 'a' < 'B'") {
		t.Fatal("the collation is none of language")
	}
	live(b)
	b = setupLocale(t, icu)
	upper := b.subscribe(func(s *delivery.Settings) { s.EventTypes = []string{"Invoice.*"} })
	lower := b.subscribe(func(s *delivery.Settings) { s.EventTypes = []string{"invoice.*"} })
	assets := []string{"B", "a", "Ä", "a b", "ab", "a-b", "A", "_", "ß", "ss"}
	for _, asset := range assets {
		e := event(asset)
		e.Type = "invoice.paid"
		b.enqueueEvents(e)
	}
	b.is.Equal(b.counts(upper), "")
	b.is.Equal(b.counts(lower), fmt.Sprintf("pending:%d ", len(assets)))
	var paged []string
	for after := (*string)(nil); ; {
		page, err := b.store.Streams(b.ctx, lower, after, 3)
		b.is.NoErr(err)
		for i := range page {
			paged, after = append(paged, page[i].Asset), &page[i].Asset
		}
		if len(page) < 3 {
			break
		}
	}
	b.is.Equal(len(paged), len(assets)) // none twice, none left out
	b.is.Equal(len(b.claim(100)), len(assets))
}

// setupZone is setup with a clock, on a server whose sessions are in a time zone.
func setupZone(t *testing.T, zone string, at time.Time) (*bundle, *clock) {
	t.Helper()
	c := &clock{at: at}
	b := setupOn(t, pgtest.NewDirect(t), delivery.StoreConfig{Now: c.now}) // a pooler's sessions know the zone of before
	b.exec(fmt.Sprintf("ALTER DATABASE %s SET timezone = '%s'", b.pool.Config().ConnConfig.Database, zone))
	b.pool.Reset()
	b.is.Equal(one[string](b, "SHOW timezone"), zone)
	return b, c
}

// Times are instants: a clock that is put back an hour changes no delay.
func TestAServerInATimeZoneWithDaylightSaving(t *testing.T) {
	t.Parallel()
	for zone, change := range map[string]string{
		"Europe/Berlin":    "2026-10-25T00:30:00Z", // 02:30, once more half an hour later
		"America/New_York": "2026-03-08T06:30:00Z", // 01:30, half an hour before 03:00
	} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			at, err := time.Parse(time.RFC3339, change)
			is.New(t).NoErr(err)
			b, c := setupZone(t, zone, at)
			b.subscribe()
			b.enqueue("a")
			b.settleAs(func(r *delivery.Result) { r.Verdict, r.Delay = delivery.Failed, 90*time.Minute }, b.claim(1)...)
			due := one[time.Time](b, "SELECT due_at FROM postlane.deliveries")
			b.is.True(due.Equal(at.Add(90 * time.Minute)))
			c.advance(90*time.Minute - time.Second)
			_, next, err := b.store.Ripen(b.ctx, 10)
			b.is.NoErr(err)
			b.is.Equal(next, time.Second)
			b.is.Equal(len(b.claim(1)), 0)
			c.advance(time.Second)
			ripened, _, err := b.store.Ripen(b.ctx, 10)
			b.is.NoErr(err)
			b.is.Equal(ripened, int64(1))
			b.is.Equal(len(b.claim(1)), 1)
		})
	}
}

// What is kept for a day is kept for 24 hours, also on the days that have 23 or 25.
func TestPruningAcrossAChangeOfTheClocks(t *testing.T) {
	t.Parallel()
	for zone, changes := range map[string][]string{
		"Europe/Berlin":    {"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"},
		"America/St_Johns": {"2026-03-08T05:30:00Z", "2026-11-01T04:30:00Z"},
	} {
		for _, change := range changes {
			t.Run(zone+" "+change, func(t *testing.T) {
				t.Parallel()
				changed, err := time.Parse(time.RFC3339, change)
				is.New(t).NoErr(err)
				b, _ := setupZone(t, zone, changed.Add(12*time.Hour))
				offset := func(hours int) string {
					return one[string](b, "SELECT extract(timezone FROM $1::timestamptz)::text", changed.Add(time.Duration(hours)*time.Hour))
				}
				b.is.True(offset(-1) != offset(1)) // it is a change
				b.subscribe()
				const day = 24 * time.Hour
				cutoff := changed.Add(-day / 2)
				// One was over a second before the cut-off, the other a second after it.
				for i, at := range []time.Time{cutoff.Add(-time.Second), cutoff.Add(time.Second)} {
					for j, state := range []string{"delivered", "dead"} {
						seq := 1 + 2*i + j
						b.exec(`INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, created_at, settled_at, attempts, state)
							VALUES (1, $1, $2, 'e' || $1::bigint, 'thing.changed', $3, $3, 1, $4)`, seq, tenant, at, state)
						b.exec(`INSERT INTO postlane.events (seq, tenant, id, type, content_type, payload, created_at)
							VALUES ($1, $2, 'e' || $1::bigint, 'thing.changed', 'text/plain', '', $3)`, seq, tenant, at)
					}
				}
				b.is.Equal(b.prune(delivery.Retention{Settled: day, Dead: day, Events: day}), delivery.Pruned{Deliveries: 2, Events: 2})
				b.is.Equal(one[string](b, "SELECT string_agg(seq::text, ' ' ORDER BY seq) FROM postlane.settled"), "3 4")
				b.is.Equal(one[string](b, "SELECT string_agg(seq::text, ' ' ORDER BY seq) FROM postlane.events"), "3 4")
			})
		}
	}
}
