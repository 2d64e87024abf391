package server_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/postgres"
)

// until asks whether the server is ready until it answers with the status and the text.
func (r *running) until(status int, text string) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		if got, said := r.do("GET", "/readyz", ""); got == status && strings.Contains(said, text) {
			return
		}
	}
}

func TestReadyWaitsForMigrations(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	r := start(t, func(o *options) { o.pool = pool })
	var version string
	r.is.NoErr(pool.QueryRow(t.Context(), "DELETE FROM public.schema_migrations WHERE version = (SELECT max(version) FROM public.schema_migrations) RETURNING version").Scan(&version))
	status, text := r.do("GET", "/readyz", "")
	r.is.Equal(status, 503)
	r.is.True(strings.Contains(text, "the database schema is behind; run: postlane migrate up"))
	status, _ = r.do("GET", "/healthz", "") // starting again would not help
	r.is.Equal(status, 200)
	_, err := pool.Exec(t.Context(), "INSERT INTO public.schema_migrations VALUES ($1), ('9999')", version)
	r.is.NoErr(err)
	status, text = r.do("GET", "/readyz", "") // a later release has been here: it goes on
	r.is.Equal(status, 200)
	r.is.True(strings.Contains(text, `"status":"ready"`))
	r.stop()
	r.is.NoErr(<-r.done)
}

// The database goes away, comes back as a standby, and is a primary again; whatever it is,
// the process lives.
func TestReadyKnowsWhatTheDatabaseIs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	config := postgres.Config{Dir: filepath.Join(t.TempDir(), "data"), NoSync: true}
	primary, err := postgres.Start(ctx, config)
	is.NoErr(err)
	pool, err := pgxpool.New(context.Background(), primary.URL("postgres"))
	is.NoErr(err)
	defer pool.Close()
	config.Port = int(pool.Config().ConnConfig.Port)
	_, err = migrate.Up(ctx, pool.Config().ConnConfig, db.Schema(), migrate.Config{})
	is.NoErr(err)
	r := start(t, func(o *options) { o.pool = pool })
	r.until(200, "ready")

	is.NoErr(primary.Stop())
	r.until(503, "the database does not answer")
	// A standby without a primary, which waits for what there is to follow.
	signal := filepath.Join(config.Dir, "standby.signal")
	is.NoErr(os.WriteFile(signal, nil, 0o666))
	is.NoErr(os.Chmod(signal, 0o666)) // whatever user the server runs as
	standby, err := postgres.Start(ctx, config)
	is.NoErr(err)
	r.until(503, "the database takes no writes")
	status, _ := r.do("GET", "/healthz", "")
	is.Equal(status, 200)

	is.NoErr(standby.Stop())
	is.NoErr(os.Remove(signal))
	again, err := postgres.Start(ctx, config)
	is.NoErr(err)
	defer again.Stop()
	r.until(200, "ready")
	r.stop()
	is.NoErr(<-r.done)
}
