package delivery_test

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// way is one of the statements that store an event and fan it out. It returns the event's id.
type way struct {
	name    string
	enqueue func(tx pgx.Tx, e delivery.Event) string
}

// ways are all of them, each with SQL of its own. The first is what the others are held to.
func (b *bundle) ways() []way {
	enqueue := func(tx pgx.Tx, events ...delivery.Event) []delivery.Enqueued {
		b.t.Helper()
		enqueued, err := delivery.Enqueue(b.ctx, tx, events...)
		b.is.NoErr(err)
		return enqueued
	}
	return []way{
		{"postlane.enqueue", func(tx pgx.Tx, e delivery.Event) (id string) {
			var later *time.Time
			if !e.DeliverAfter.IsZero() {
				later = &e.DeliverAfter
			}
			b.is.NoErr(tx.QueryRow(b.ctx, "SELECT id FROM postlane.enqueue($1, $2, $3::bytea, $4, NULL, $5, $6, $7)",
				e.Tenant, e.Type, e.Payload, e.Asset, e.ContentType, e.Traceparent, later).Scan(&id))
			return id
		}},
		{"EventEnqueueNew", func(tx pgx.Tx, e delivery.Event) string { return enqueue(tx, e)[0].ID }},
		{"EventEnqueueOne", func(tx pgx.Tx, e delivery.Event) string {
			e.ID = rand.Text()
			return enqueue(tx, e)[0].ID
		}},
		{"EventEnqueue", func(tx pgx.Tx, e delivery.Event) string {
			// Between two that differ in all, so that what is taken from a neighbour shows.
			before := delivery.Event{
				Tenant: tenant, Type: "thing.before", Asset: "before", Payload: []byte(`{"a":[1,2],"b":0}`),
				Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", DeliverAfter: time.Now().Add(time.Minute),
			}
			after := delivery.Event{Tenant: "after", Type: "after", Asset: "after", ContentType: "text/html", Payload: []byte("<p>")}
			return enqueue(tx, before, e, after)[1].ID
		}},
	}
}

// left is what an open transaction holds of an event: its row and its deliveries, as text,
// without what differs each time; and the descriptions of the subscriptions that it reaches.
func (b *bundle) left(tx pgx.Tx, id string) (rows, reached string) {
	b.t.Helper()
	b.is.NoErr(tx.QueryRow(b.ctx, `
		SELECT (to_jsonb(e) - '{id,seq,created_at}'::text[])::text || coalesce(string_agg(E'\n' ||
		           ((to_jsonb(d) - '{event_id,seq,created_at}'::text[]) || jsonb_build_object('ready', d.ready = d.seq, 'as the event', d.seq = e.seq))::text,
		           '' ORDER BY s.description), ''),
		       coalesce(string_agg(s.description, ' ' ORDER BY s.description), '')
		FROM postlane.events e
		LEFT JOIN postlane.deliveries d ON d.event_id = e.id
		LEFT JOIN postlane.subscriptions s ON s.id = d.subscription_id
		WHERE e.id = $1 GROUP BY e.tenant, e.id`, id).Scan(&rows, &reached))
	return rows, reached
}

func TestEveryWayToEnqueueLeavesTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for description, s := range map[string]struct{ types, conditions []string }{
		"all":      {},
		"prefix":   {types: []string{"thing.*"}},
		"two":      {types: []string{"thing.changed", "else"}},
		"where-a":  {conditions: []string{"a eq 1"}},
		"where-ab": {types: []string{"thing.*"}, conditions: []string{"a eq 2", "b exists"}},
	} {
		b.subscribe(b.conditions(s.conditions...), func(to *delivery.Settings) { to.Description, to.EventTypes = &description, s.types })
	}
	for name, c := range map[string]struct {
		change  func(*delivery.Event)
		reaches string
	}{
		"plain":            {func(*delivery.Event) {}, "all prefix two where-a"},
		"no asset":         {func(e *delivery.Event) { e.Asset = "" }, "all prefix two where-a"},
		"content type":     {func(e *delivery.Event) { e.ContentType = "application/cloudevents+json" }, "all prefix two where-a"},
		"trace":            {func(e *delivery.Event) { e.Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" }, "all prefix two where-a"},
		"later":            {func(e *delivery.Event) { e.DeliverAfter = time.Now().Add(time.Hour) }, "all prefix two where-a"},
		"other conditions": {func(e *delivery.Event) { e.Payload = []byte(`{"a":2,"b":0}`) }, "all prefix two where-ab"},
		"one of two":       {func(e *delivery.Event) { e.Payload = []byte(`{"a":2}`) }, "all prefix two"},
		"not called JSON":  {func(e *delivery.Event) { e.ContentType = "text/plain" }, "all prefix two"},
		"not JSON":         {func(e *delivery.Event) { e.Payload = []byte("a\x00\xff") }, "all prefix two"},
		"no payload":       {func(e *delivery.Event) { e.Payload = []byte{} }, "all prefix two"},
		"deeper type":      {func(e *delivery.Event) { e.Type = "thing.part.lost" }, "all prefix where-a"},
		"no prefix":        {func(e *delivery.Event) { e.Type = "thing" }, "all where-a"},
		"second type":      {func(e *delivery.Event) { e.Type = "else" }, "all two where-a"},
		"no subscription":  {func(e *delivery.Event) { e.Tenant = "another" }, ""},
	} {
		e := event("asset")
		c.change(&e)
		var want string
		for i, w := range b.ways() {
			tx := b.begin()
			rows, reached := b.left(tx, w.enqueue(tx, e))
			b.is.NoErr(tx.Rollback(b.ctx))
			if i == 0 {
				want = rows
			}
			if reached != c.reaches {
				t.Errorf("%s: %s reaches %q, and not %q", name, w.name, reached, c.reaches)
			} else if rows != want {
				t.Errorf("%s: %s leaves\n%s\nand not\n%s", name, w.name, rows, want)
			}
		}
	}
}

func TestEveryWayToEnqueueWakes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	listener, err := pgx.ConnectConfig(ctx, pgtest.Direct(t, b.pool))
	b.is.NoErr(err)
	defer listener.Close(context.Background())
	_, err = listener.Exec(ctx, "LISTEN postlane")
	b.is.NoErr(err)
	for _, w := range b.ways() {
		// All tests of a process share what it may notify, so that a try may have to go without.
		for woken := false; !woken; {
			if ctx.Err() != nil {
				t.Fatalf("%s does not wake", w.name)
			}
			tx := b.begin()
			w.enqueue(tx, event("a"))
			b.is.NoErr(tx.Commit(b.ctx))
			words := pgtest.Heard(t, b.pool, listener)
			woken = slices.Equal(words, []string{"delivery"})
			b.is.True(woken || len(words) == 0)
		}
	}
}
