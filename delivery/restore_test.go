package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/postgres"
)

// A dump that is restored to a new server goes on: what was in flight at the dump is
// sent again when its lease ends, what was delivered after it too, all in order, and
// new events follow.
func TestADumpIsRestoredToANewServerAndGoesOn(t *testing.T) {
	t.Parallel()
	s := siteOf(setupOn(t, pgtest.NewDirect(t), delivery.StoreConfig{}))
	sub := s.endpoint("/a")
	assets := append(names("asset ", 5), "")
	c := s.config()
	dispatch := func(events int64) {
		t.Helper()
		_, stop := s.dispatch(c)
		s.is.NoErr(s.receiver.WaitFor(s.within(patience), events))
		s.eventually(func() bool { return one[int64](s.bundle, "SELECT count(*) FROM postlane.settled") == events })
		s.is.NoErr(stop())
	}
	for range 2 {
		s.enqueue(assets...)
	}
	dispatch(12)
	for range 3 {
		s.enqueue(assets...)
	}
	held, err := s.store.Claim(s.ctx, delivery.ClaimRequest{Claimant: "at the dump", Max: 2, MaxInFlight: 2, Lease: time.Hour})
	s.is.NoErr(err)
	s.is.Equal(len(held), 2)
	dump := dumpOf(t, s.pool)
	dispatch(24) // the four other streams

	s.pool = restored(t, dump)
	s.store = storeOn(t, s.pool)
	s.is.Equal(s.counts(sub), "pending:16 delivering:2 delivered:12 ")
	// The old server had given out numbers that the dump does not know.
	s.exec("SELECT setval('postlane.delivery_seq', nextval('postlane.delivery_seq') + 1000000), setval('postlane.fence_seq', nextval('postlane.fence_seq') + 1000000)")
	s.exec("UPDATE postlane.leases SET lease_until = now()") // an hour later
	s.is.True(s.enqueue(assets...)[0].Seq > 1_000_000)
	c.Store, c.Listen = s.store, s.pool.Config().ConnConfig
	dispatch(36)
	s.sound()
	s.is.Equal(s.receiver.Verdict().Events, int64(36))
	s.is.Equal(s.receiver.Verdict().Duplicates, int64(12)) // what went out after the dump
	// Whoever held a lease at the dump takes nothing back.
	s.is.Equal(s.settle(delivery.Failed, held...), []delivery.Settled{"lost", "lost"})
}

// dumpOf dumps a pool's database and returns the file.
func dumpOf(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	var version int
	is.New(t).NoErr(pool.QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int / 10000").Scan(&version))
	if found, err := postgres.Find(); err == nil && found.Major() < version {
		pgtest.Lacks(t, fmt.Errorf("pg_dump is of PostgreSQL %d, the server of %d", found.Major(), version))
	}
	file := filepath.Join(t.TempDir(), "dump")
	runs(t, "pg_dump", "--format=custom", "--file="+file, pool.Config().ConnString())
	return file
}

// restored returns a pool of a new server that has what was dumped.
func restored(t *testing.T, file string) *pgxpool.Pool {
	t.Helper()
	is := is.New(t)
	server, err := postgres.Start(t.Context(), postgres.Config{Dir: filepath.Join(t.TempDir(), "data"), NoSync: true, MaxConnections: 50})
	if errors.Is(err, postgres.ErrNoPostgres) {
		pgtest.Lacks(t, err)
	}
	is.NoErr(err)
	t.Cleanup(func() { _ = server.Stop() })
	runs(t, "pg_restore", "--exit-on-error", "--dbname="+server.URL("postgres"), file)
	pool, err := pgxpool.New(context.Background(), server.URL("postgres"))
	is.NoErr(err)
	t.Cleanup(pool.Close)
	return pool
}

// runs starts a program of PostgreSQL's and waits for it.
func runs(t *testing.T, name string, args ...string) {
	t.Helper()
	if said, err := exec.CommandContext(t.Context(), pgtest.Program(t, name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, said)
	}
}
