package fromsql_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// matches is what a pattern of event types means, said as plainly as can be.
func matches(pattern, kind string) bool {
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	return pattern == kind || isPrefix && strings.HasPrefix(kind, prefix)
}

// FuzzPatterns holds that an event reaches a subscription once if one of its patterns, or
// several, match its type, and never if none does, whether it was enqueued from Go or from
// SQL; and that the two refuse the same types.
func FuzzPatterns(f *testing.F) {
	for _, s := range [][2]string{
		{"invoice.paid", "invoice.*"}, {"invoice.paid", "invoice.paid\ninvoice.*\n*"}, {"invoice", "invoice.*"}, {"a.b.c", "a.*\na.b.*"}, {"a.b.c", "a.b"},
		{"A_-9", "*"}, {"ab.c", "a.*"}, {"a..b", "*"}, {strings.Repeat("a.", 15) + "a", strings.Repeat("a.", 14) + "*"}, {"a.b", "A.*"}, {"é", "*"}, {"a_b", "a-b"},
	} {
		f.Add(s[0], s[1])
	}
	pool, ctx := pgtest.New(f), f.Context()
	g, err := guard.New(guard.Policy{})
	if err != nil {
		f.Fatal(err)
	}
	store, err := delivery.NewStore(pool, delivery.StoreConfig{Guard: g})
	if err != nil {
		f.Fatal(err)
	}
	sub, _, err := store.CreateSubscription(ctx, "acme", delivery.Settings{URL: "https://example.com/"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, kind, lines string) {
		is := is.New(t)
		patterns := strings.Split(lines, "\n")
		_, err := store.UpdateSubscription(ctx, sub.ID, func(s *delivery.Settings) error { s.EventTypes = patterns; return nil })
		if invalid := (*delivery.InvalidError)(nil); errors.As(err, &invalid) {
			return
		}
		is.NoErr(err)
		want := 0
		for _, p := range patterns {
			if matches(p, kind) {
				want = 1
			}
		}
		event := delivery.Event{Tenant: "acme", Type: kind, Payload: []byte("{}")}
		trial := func(enqueue func(pgx.Tx) error) (deliveries int, err error) {
			tx, err := pool.Begin(ctx)
			is.NoErr(err)
			defer tx.Rollback(ctx)
			if err := enqueue(tx); err != nil {
				return 0, err
			}
			is.NoErr(tx.QueryRow(ctx, "SELECT count(*) FROM postlane.deliveries").Scan(&deliveries))
			return deliveries, nil
		}
		fromGo, errGo := trial(func(tx pgx.Tx) error {
			_, err := delivery.Enqueue(ctx, tx, event)
			return err
		})
		fromSQL, errSQL := trial(func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT postlane.enqueue('acme', $1, $2::bytea)", kind, event.Payload)
			return err
		})
		if errGo != nil || errSQL != nil {
			invalid, refused := (*delivery.InvalidError)(nil), (*pgconn.PgError)(nil)
			// What is no text at all is refused by PostgreSQL before it is seen as an argument.
			if !errors.As(errGo, &invalid) || !errors.As(errSQL, &refused) || refused.Code != "22023" && refused.Code != "22021" {
				t.Fatalf("%q: %v from Go, and %v from SQL", kind, errGo, errSQL)
			}
			return
		}
		if fromGo != want || fromSQL != want {
			t.Fatalf("%q reaches %q %d times from Go, %d times from SQL, and not %d times", kind, patterns, fromGo, fromSQL, want)
		}
	})
}
