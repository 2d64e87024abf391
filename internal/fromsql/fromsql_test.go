// Package fromsql holds the SQL functions postlane.enqueue and postlane.stage to what
// delivery.Enqueue and outbox.Stage do.
package fromsql_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/pgtest"
)

type bundle struct {
	*pgxpool.Pool

	is  *is.I
	t   *testing.T
	ctx context.Context
}

// setup returns a database with some subscriptions.
func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{pgtest.New(t), is.New(t), t, t.Context()}
	local, err := guard.New(guard.Policy{Development: true})
	b.is.NoErr(err)
	store, err := delivery.NewStore(b.Pool, delivery.StoreConfig{Guard: local})
	b.is.NoErr(err)
	for _, patterns := range [][]string{{"*"}, {"invoice.*"}, {"invoice.paid", "a.b.c.*"}, {"customer.created"}} {
		_, _, err := store.CreateSubscription(b.ctx, "acme", delivery.Settings{URL: "http://127.0.0.1:8080/", EventTypes: patterns})
		b.is.NoErr(err)
	}
	return b
}

// written is what a transaction wrote, as text, without what differs each time.
type written struct{ rows string }

var generated = regexp.MustCompile(`"(evt|msg)_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"`)

// trial runs f in a transaction that is rolled back, and returns what it wrote into
// tables.
func (b *bundle) trial(tables []string, f func(tx pgx.Tx) error) (written, error) {
	b.t.Helper()
	tx, err := b.Begin(b.ctx)
	b.is.NoErr(err)
	defer tx.Rollback(b.ctx)
	if err := f(tx); err != nil {
		return written{}, err
	}
	var all strings.Builder
	for _, table := range tables {
		var rows string
		// Numbers count from the first of the transaction.
		err := tx.QueryRow(b.ctx, fmt.Sprintf(`
			SELECT coalesce(string_agg((to_jsonb(t) - '{created_at,staged_at,since,ready}'::text[]
				|| jsonb_build_object('seq', t.seq - (SELECT min(seq) FROM postlane.%[1]s)))::text, E'\n' ORDER BY t.seq, t::text), '')
			FROM postlane.%[1]s t`, table)).Scan(&rows)
		b.is.NoErr(err)
		fmt.Fprintf(&all, "%s:\n%s\n", table, generated.ReplaceAllString(rows, `"$1_…"`))
	}
	return written{all.String()}, nil
}

// snake is a field's name as the parameter's: IdempotencyKey is idempotency_key.
func snake(field string) string {
	if field == "ID" {
		return "id"
	}
	return strings.ToLower(regexp.MustCompile(`(.)([A-Z])`).ReplaceAllString(field, "${1}_$2"))
}

// same holds the outcome of the SQL function to that of the Go function.
func (b *bundle) same(name string, goErr, sqlErr error, field, problem string) {
	b.t.Helper()
	var pg *pgconn.PgError
	switch {
	case goErr == nil && sqlErr == nil:
	case goErr == nil || sqlErr == nil:
		b.t.Errorf("%s: Go says %v, SQL says %v", name, goErr, sqlErr)
	case !errors.As(sqlErr, &pg):
		b.t.Errorf("%s: %v", name, sqlErr)
	case pg.Code != "22023" || pg.ColumnName != field || !strings.HasSuffix(pg.Message, ": "+field+" "+problem):
		b.t.Errorf("%s:\n\tGo:  %s %s\n\tSQL: %s (%s, %s)", name, field, problem, pg.Message, pg.Code, pg.ColumnName)
	}
}

// optional is NULL for the zero value, as most callers leave out what they have not.
func optional[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
