package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver named pgx
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/sqltx"
)

// begin returns a transaction of pgx's driver in a query mode, "" for the default.
func begin(t *testing.T, mode string) (context.Context, pgx.Tx) {
	t.Helper()
	is := is.New(t)
	address, err := url.Parse(pgtest.EmptyURL(t))
	is.NoErr(err)
	if mode != "" {
		query := address.Query()
		query.Set("default_query_exec_mode", mode)
		address.RawQuery = query.Encode()
	}
	db, err := sql.Open("pgx", address.String())
	is.NoErr(err)
	t.Cleanup(func() { db.Close() })
	tx, err := db.BeginTx(t.Context(), nil)
	is.NoErr(err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return t.Context(), sqltx.Pgx(tx)
}

func TestArraysArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "exec", "simple_protocol", "describe_exec", "cache_describe"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			ctx, tx := begin(t, mode)
			texts := []string{"", "NULL", `a"b\c`, "{x,y}", " ü\n'", `\`, "😀"}
			bytes := [][]byte{{}, {0, 0xff}, []byte(`\x"`)}
			numbers := []int64{-1 << 63, 0, 1<<63 - 1}
			rows, err := tx.Query(ctx, `
				SELECT t, b, n, i FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::integer[]) WITH ORDINALITY AS u (t, b, n, i, at) ORDER BY at`,
				texts, bytes, numbers, []int32{7})
			is.NoErr(err)
			defer rows.Close()
			for at := 0; rows.Next(); at++ {
				var text string
				var body []byte
				var n, i *int64
				is.NoErr(rows.Scan(&text, &body, &n, &i))
				is.Equal(text, texts[at])
				if at < len(bytes) {
					is.Equal(string(body), string(bytes[at]))
					is.Equal(*n, numbers[at])
				} else {
					is.True(body == nil && n == nil)
				}
				is.Equal(i != nil, at == 0)
			}
			is.NoErr(rows.Err())
			var count int
			is.NoErr(tx.QueryRow(ctx, "SELECT cardinality($1::text[])", []string{}).Scan(&count))
			is.Equal(count, 0)
			is.True(errors.Is(tx.QueryRow(ctx, "SELECT 1 WHERE false").Scan(&count), pgx.ErrNoRows))
		})
	}
}

func TestABatchEndsAtItsFirstError(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, tx := begin(t, "")
	_, err := tx.Exec(ctx, "CREATE TEMP TABLE t (n int PRIMARY KEY)")
	is.NoErr(err)
	b := &pgx.Batch{}
	b.Queue("SAVEPOINT s")
	b.Queue("INSERT INTO t VALUES ($1)", 1)
	read := 0
	b.Queue("INSERT INTO t VALUES ($1) RETURNING n", 2).QueryRow(func(row pgx.Row) error { return row.Scan(&read) })
	b.Queue("INSERT INTO t VALUES ($1)", 1)
	b.Queue("SELECT n FROM t").Query(func(pgx.Rows) error { t.Error("it was run"); return nil })
	err = tx.SendBatch(ctx, b).Close()
	var pg *pgconn.PgError
	is.True(errors.As(err, &pg))
	is.Equal(pg.Code, "23505")
	is.Equal(read, 2)
	_, err = tx.Exec(ctx, "ROLLBACK TO s")
	is.NoErr(err)
}

// otherDriver is a transaction of a driver whose errors tell their SQLSTATE in their own way.
type otherDriver struct{ sqltx.Tx }

type otherError struct{}

func (otherError) Error() string    { return "pq: no lock" }
func (otherError) SQLState() string { return "55P03" }

func (otherDriver) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, otherError{}
}

func (otherDriver) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, otherError{}
}

func TestErrorsOfOtherDriversTellTheirState(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	tx := sqltx.Pgx(otherDriver{})
	_, execErr := tx.Exec(t.Context(), "")
	rows, queryErr := tx.Query(t.Context(), "")
	rows.Close()
	for _, err := range []error{execErr, queryErr, tx.QueryRow(t.Context(), "").Scan()} {
		var pg *pgconn.PgError
		is.True(errors.As(err, &pg) && pg.Code == "55P03")
		is.True(errors.Is(err, otherError{}))
		is.True(strings.HasPrefix(err.Error(), "pq: no lock"))
	}
}
