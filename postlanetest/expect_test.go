package postlanetest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/postlanetest"
)

// failures stands in for a test that is expected to fail.
type failures struct {
	testing.TB

	text []string
}

func (f *failures) Helper() {}
func (f *failures) Errorf(format string, args ...any) {
	f.text = append(f.text, fmt.Sprintf(format, args...))
}

func begin(t *testing.T) (context.Context, pgx.Tx) {
	t.Helper()
	ctx := t.Context()
	tx, err := pgtest.New(t).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	return ctx, tx
}

func TestEventsAreThoseOfTheTransaction(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	pool := pgtest.New(t)
	enqueue := func(tx pgx.Tx, ids ...string) {
		for _, id := range ids {
			_, err := delivery.Enqueue(ctx, tx, delivery.Event{ID: id, Tenant: "acme", Type: "a.b", Payload: []byte("{}")})
			is.NoErr(err)
		}
	}
	begin := func() pgx.Tx {
		tx, err := pool.Begin(ctx)
		is.NoErr(err)
		return tx
	}
	before := begin()
	enqueue(before, "before")
	is.NoErr(before.Commit(ctx))

	tx := begin()
	defer tx.Rollback(ctx)
	is.Equal(len(postlanetest.Events(t, tx)), 0)
	enqueue(tx, "one", "", "before", "one") // with an id it goes through a savepoint; two are duplicates

	other := begin()
	enqueue(other, "other")
	is.NoErr(other.Commit(ctx)) // visible to tx, and newer than it

	undone, err := tx.Begin(ctx)
	is.NoErr(err)
	enqueue(undone, "undone")
	is.Equal(len(postlanetest.Events(t, undone)), 3)
	is.NoErr(undone.Rollback(ctx))
	kept, err := tx.Begin(ctx)
	is.NoErr(err)
	enqueue(kept, "kept")
	is.NoErr(kept.Commit(ctx))

	var ids []string
	for _, e := range postlanetest.Events(t, tx) {
		ids = append(ids, e.ID)
	}
	is.Equal(len(ids), 3)
	is.Equal([]string{ids[0], ids[2]}, []string{"one", "kept"})
	is.True(strings.HasPrefix(ids[1], "evt_"))
}

func TestExpectEvents(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, tx := begin(t)
	postlanetest.ExpectEvents(t, tx)
	_, err := delivery.Enqueue(ctx, tx,
		delivery.Event{Tenant: "acme", Type: "invoice.paid", Asset: "in_1", Payload: []byte(`{"total": 1200, "id":"in_1"}`)},
		delivery.Event{Tenant: "acme", Type: "invoice.sent", Payload: []byte("not JSON"), ContentType: "text/plain"},
	)
	is.NoErr(err)

	for name, c := range map[string]struct {
		want     []delivery.Event
		problems []string
	}{
		"all that is said": {[]delivery.Event{
			{Tenant: "acme", Type: "invoice.paid", Asset: "in_1", ContentType: delivery.DefaultContentType, Payload: []byte(`{"id":"in_1","total":1200}`)},
			{Tenant: "acme", Type: "invoice.sent", Payload: []byte("not JSON"), ContentType: "text/plain"},
		}, nil},
		"little that is said": {[]delivery.Event{{}, {Type: "invoice.sent"}}, nil},
		"one missing":         {[]delivery.Event{{}, {}, {Type: "invoice.void"}}, []string{`event 2 is missing: want {Type: "invoice.void"}`}},
		"one too many":        {[]delivery.Event{{}}, []string{"event 1 is one too many", `Type: "invoice.sent"`}},
		"none":                {nil, []string{"event 0 is one too many", "event 1 is one too many"}},
		"another order": {[]delivery.Event{{Type: "invoice.sent"}, {Type: "invoice.paid"}}, []string{
			`event 0: Type is "invoice.paid", want "invoice.sent"`, `event 1: Type is "invoice.sent", want "invoice.paid"`,
		}},
		"another payload": {[]delivery.Event{{Payload: []byte(`{"id":"in_1","total":1200.0}`)}, {}}, []string{"event 0: Payload is"}},
		"more payload":    {[]delivery.Event{{}, {Payload: []byte("not JSON ")}}, []string{"event 1: Payload is"}},
	} {
		got := &failures{TB: t}
		postlanetest.ExpectEvents(got, tx, c.want...)
		text := strings.Join(got.text, "\n")
		if (text != "") != (c.problems != nil) {
			t.Errorf("%s: %s", name, text)
		}
		for _, p := range c.problems {
			if !strings.Contains(text, p) {
				t.Errorf("%s: %q does not say %q", name, text, p)
			}
		}
	}
}

func TestExpectMessages(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, tx := begin(t)
	postlanetest.ExpectMessages(t, tx)
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	_, err := outbox.Stage(ctx, tx,
		outbox.Message{ID: "m1", Topic: "mail", Queue: "q", Tenant: "acme", Payload: []byte(`{"a":1}`), Headers: map[string]string{"k": "v"}, RunAt: at},
		outbox.Message{Topic: "mail", IdempotencyKey: "once", MaxAttempts: 3, EnqueuedBy: "test"},
		outbox.Message{Topic: "mail", IdempotencyKey: "once"},
	)
	is.NoErr(err)
	postlanetest.ExpectMessages(t, tx,
		outbox.Message{ID: "m1", Topic: "mail", Queue: "q", Tenant: "acme", Payload: []byte(`{ "a": 1 }`), Headers: map[string]string{"k": "v"}, RunAt: at.UTC()},
		outbox.Message{Topic: "mail", IdempotencyKey: "once", MaxAttempts: 3, EnqueuedBy: "test", Queue: outbox.DefaultQueue},
	)
	got := &failures{TB: t}
	postlanetest.ExpectMessages(got, tx, outbox.Message{Headers: map[string]string{"k": "w"}, RunAt: at.Add(1)}, outbox.Message{MaxAttempts: 4})
	is.Equal(len(got.text), 1)
	for _, p := range []string{"message 0: Headers is map[k:v], want map[k:w]", "message 0: RunAt is", "message 1: MaxAttempts is 3, want 4"} {
		is.True(strings.Contains(got.text[0], p))
	}
}
