package pgerr_test

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgerr"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/postgres"
)

// A server that dies says nothing, and its connections end in the middle.
func TestAServerThatDiesIsAway(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	server, err := postgres.Start(ctx, postgres.Config{Dir: filepath.Join(t.TempDir(), "data"), NoSync: true})
	is.NoErr(err)
	defer func() { _ = server.Stop() }()
	pool, err := pgxpool.New(context.Background(), server.URL("postgres"))
	is.NoErr(err)
	defer pool.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for name, ask := range map[string]func() error{
		"a statement": func() error {
			_, err := pool.Exec(ctx, "SELECT 1")
			return err
		},
		"a transaction": func() error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SELECT 1")
				return err
			})
		},
	} {
		var pid int
		for {
			if err = pool.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err == nil {
				break
			}
			is.True(pgerr.Away(err)) // it is starting again
		}
		is.NoErr(syscall.Kill(pid, syscall.SIGKILL))
		for !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			<-tick.C
		}
		if err := ask(); err == nil || !pgerr.Away(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	is.True(!pgerr.Away(context.Canceled))
	is.True(!pgerr.Away(nil))
}

// What cannot be text is the fault of who sent it, in every way of sending it.
func TestNoTextIsNotAway(t *testing.T) {
	t.Parallel()
	pool := pgtest.NewEmpty(t)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		for _, value := range []string{"a\x00b", "\x00", "a\xff"} {
			_, err := pool.Exec(t.Context(), "SELECT $1::text", mode, value)
			if !pgerr.NotText(err) {
				t.Errorf("%v, %q: %v", mode, value, err)
			}
		}
		_, err := pool.Exec(t.Context(), "SELECT $1::text", mode, "\uFFFD")
		if err != nil {
			t.Errorf("%v: %v", mode, err)
		}
	}
	if pgerr.NotText(&pgconn.PgError{Code: "08P01", Message: "no more connections allowed"}) {
		t.Error("what a pooler says is taken for a bad value")
	}
}
