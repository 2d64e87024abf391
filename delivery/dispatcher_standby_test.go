package delivery_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/postgres"
)

// A dispatcher that begins at a standby says so and waits; promoted, its deliveries are
// made, each by one attempt. So it is with a primary that is set to be read only meanwhile.
func TestAStandbyIsWaitedOut(t *testing.T) {
	t.Parallel()
	pgtest.Program(t, "pg_basebackup")
	is := is.New(t)
	ctx := t.Context()
	primary := pgtest.NewServer(t)
	s := siteOf(setupOn(t, primary.Pool, delivery.StoreConfig{}))
	sub := s.endpoint("/a")
	s.enqueue(names("k", 5)...)
	s.enqueue(names("k", 5)...)

	standby, err := postgres.StartStandby(ctx, primary.Server, "standby", postgres.Config{Dir: filepath.Join(t.TempDir(), "standby"), NoSync: true})
	is.NoErr(err)
	defer func() { _ = standby.Stop() }()
	second, err := pgxpool.New(context.Background(), standby.URL("postgres"))
	is.NoErr(err)
	t.Cleanup(second.Close)
	is.NoErr(primary.Stop())

	s.bundle = setupOn(t, second, delivery.StoreConfig{})
	lines := make(chan string, 10_000)
	c := s.config()
	c.Logger = logTo(lines)
	w := observe(t, &c)
	s.dispatch(c)
	logged(t, lines, "the database takes no writes")
	is.Equal(s.requests("/a"), 0)
	s.exec("SELECT pg_promote()")
	w.outcomes(10)
	is.Equal(s.counts(sub), "delivered:10 ")

	s.exec("ALTER SYSTEM SET default_transaction_read_only = on")
	s.exec("SELECT pg_reload_conf()")
	s.eventually(func() bool {
		var setting string
		is.NoErr(second.QueryRow(ctx, "SHOW default_transaction_read_only").Scan(&setting))
		return setting == "on"
	})
	is.NoErr(pgx.BeginTxFunc(ctx, second, pgx.TxOptions{AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		_, err := delivery.Enqueue(ctx, tx, event("k"))
		return err
	}))
	logged(t, lines, "the database takes no writes")
	s.exec("ALTER SYSTEM RESET default_transaction_read_only")
	s.exec("SELECT pg_reload_conf()")
	w.outcomes(1)
	is.Equal(s.counts(sub), "delivered:11 ")
	for _, d := range s.log(sub) {
		is.Equal(d.Attempts, 1)
	}
	is.Equal(s.requests("/a"), 11)
}
