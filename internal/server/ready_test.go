package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
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
	database := pgtest.NewServer(t)
	r := start(t, func(o *options) { o.pool = database.Pool })
	r.until(200, "ready")

	is.NoErr(database.Stop())
	r.until(503, "the database does not answer")
	// A standby without a primary, which waits for what there is to follow.
	signal := filepath.Join(database.Dir(), "standby.signal")
	is.NoErr(os.WriteFile(signal, nil, 0o666))
	is.NoErr(os.Chmod(signal, 0o666)) // whatever user the server runs as
	database.Start()
	r.until(503, "the database takes no writes")
	status, _ := r.do("GET", "/healthz", "")
	is.Equal(status, 200)

	is.NoErr(database.Stop())
	is.NoErr(os.Remove(signal))
	database.Start()
	r.until(200, "ready")
	r.stop()
	is.NoErr(<-r.done)
}
