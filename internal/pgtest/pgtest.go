// Package pgtest gives each test a database of its own.
//
//	func TestClaim(t *testing.T) {
//		t.Parallel()
//		pool := pgtest.New(t) // has the whole schema
//		…
//	}
//
// The database is a copy of a template that was migrated once (some tens of
// milliseconds), so tests neither see each other nor clean up. It is dropped
// when the test passes. When it fails the database stays, and the test's log
// says which one to look into.
//
// All packages of a `go test` run share one server; package server says where
// it comes from and how long it stays.
package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// maxConns is the size of a test's pool: small, so that the tests that run at
// the same time stay within the server's max_connections.
const maxConns = 8

// New returns a pool of up to 8 connections to a new database that has the
// schema of package db. It is closed when the test ends.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return open(t, URL(t))
}

// NewEmpty is New without the schema, and never through a pooler: migrating takes
// a session.
func NewEmpty(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return open(t, EmptyURL(t))
}

// NewDirect is New, never through a pooler: for a test of what needs a session.
func NewDirect(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return open(t, DirectURL(t))
}

// URL returns the URL of a new database that has the schema of package db, for
// a test that connects in a way of its own, or from another process.
func URL(t testing.TB) string {
	t.Helper()
	url, shared := create(t, true)
	return routed(shared, url)
}

// DirectURL is URL, never through a pooler.
func DirectURL(t testing.TB) string {
	t.Helper()
	url, _ := create(t, true)
	return url.String()
}

// EmptyURL is DirectURL without the schema.
func EmptyURL(t testing.TB) string {
	t.Helper()
	url, _ := create(t, false)
	return url.String()
}

func open(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = maxConns
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// closePool closes a pool. Close waits for every connection, so one that a
// test holds on to would hang the run; it fails the test instead.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
		t.Errorf("%d connections of the test's pool are still in use", pool.Stat().AcquiredConns())
	}
}
