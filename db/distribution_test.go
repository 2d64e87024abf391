package db_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
)

// hot are the tables that have a row for each event, delivery or attempt, or that are read
// for each.
var hot = []string{"events", "deliveries", "leases", "settled", "attempts", "subscription_patterns"}

// undistributed are the unique indexes without the tenant that tables with one have all
// the same; docs/scaling.md says why.
var undistributed = []string{
	"subscriptions_pkey", "audit_pkey", "api_keys_pkey", "api_keys_hash_key", "outbox_messages_pkey",
}

// Every key of the hot tables carries the tenant, and so does that of any other table that
// has one: a distributed PostgreSQL can check no other.
func TestEveryKeyCarriesTheTenant(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pool := pgtest.New(t)
	read := func(sql string) (list []string) {
		t.Helper()
		rows, err := pool.Query(context.Background(), sql)
		is.NoErr(err)
		list, err = pgx.CollectRows(rows, pgx.RowTo[string])
		is.NoErr(err)
		return list
	}
	have := read(`SELECT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'postlane'::regnamespace AND c.relkind = 'r' AND a.attname = 'tenant' AND a.attnotnull`)
	for _, table := range hot {
		if !slices.Contains(have, table) {
			t.Errorf("%s has no tenant in every row", table)
		}
	}
	without := read(`SELECT i.relname::text
		FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
		WHERE c.relnamespace = 'postlane'::regnamespace AND x.indisunique AND NOT a.attnum = ANY (x.indkey)
		ORDER BY 1`)
	for _, index := range without {
		if !slices.Contains(undistributed, index) {
			t.Errorf("%s is unique without the tenant; add it, or say in docs/scaling.md why not", index)
		}
	}
	for _, index := range undistributed {
		if !slices.Contains(without, index) {
			t.Errorf("%s is no exception any more", index)
		}
	}
	is.Equal(read(`SELECT f.conname::text FROM pg_constraint f JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attname = 'tenant'
		WHERE f.contype = 'f' AND f.connamespace = 'postlane'::regnamespace AND NOT a.attnum = ANY (f.conkey)`), []string{})
}
