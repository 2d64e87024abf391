package migrate_test

import (
	"context"
	"io/fs"
	"os"
	osexec "os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// BC-61: several instances migrate at start-up.
func TestBC61_FourProcessesMigrateAtOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.EmptyURL(t)
	is.Equal(startFour(t, url, "")(), names(t)) // each by one of the four
	is.Equal(len(versions(t, url)), len(names(t)))
}

// A process that waits for its turn must not be what the one that works waits
// for: CREATE INDEX CONCURRENTLY waits for every session that has a snapshot.
func TestBC61_FourProcessesMakeAnIndexConcurrently(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.EmptyURL(t)
	observer, writer := connect(t, url), connect(t, url)
	exec(t, observer, "CREATE TABLE public.t (n int)")
	exec(t, writer, "BEGIN; INSERT INTO public.t VALUES (1)") // holds the index up until all four are there

	wait := startFour(t, url, "transaction:false\nCREATE INDEX CONCURRENTLY t_n ON public.t (n);")
	until(t, observer, `SELECT count(*) FILTER (WHERE query ~ '^SELECT pg_(try_)?advisory_lock') = 3
		AND count(*) FILTER (WHERE query ~ 'CREATE INDEX CONCURRENTLY' AND wait_event_type = 'Lock') = 1
		FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	exec(t, writer, "COMMIT")
	is.Equal(wait(), []string{"0001_child.sql"})
	is.Equal(column(t, url, "SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()"), []string{"0"})
}

// startFour starts four processes that migrate a database, and returns what
// waits for them and tells what they applied.
func startFour(t *testing.T, url, sql string) (wait func() []string) {
	t.Helper()
	var applied []string
	var four sync.WaitGroup
	var mu sync.Mutex
	for range 4 {
		four.Go(func() {
			child := osexec.Command(os.Args[0])
			child.Env = append(os.Environ(), childURL+"="+url, childSQL+"="+sql)
			said, err := child.CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("%v: %s", err, said)
			}
			applied = append(applied, strings.Fields(string(said))...)
		})
	}
	return func() []string {
		four.Wait()
		slices.Sort(applied)
		return applied
	}
}

// BC-62: a transaction:false part has one statement. That each file keeps to it
// is checked whenever the files are read; here they run on data.
func TestBC62_MigrationsOfAFilledDatabase(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.EmptyURL(t)
	schema, all := db.Schema(), names(t)
	_, err := migrate.Up(t.Context(), connConfig(t, url), only(t, all[0]), migrate.Config{})
	is.NoErr(err)
	conn := connect(t, url)
	exec(t, conn, `INSERT INTO postlane.subscriptions (tenant, url)
		SELECT 'tenant ' || i % 2, 'https://example.com/' || i FROM generate_series(1, 4) i`)
	exec(t, conn, `INSERT INTO postlane.events (created_at, tenant, id, type, asset, content_type, payload)
		SELECT now() - i / 10 * interval '1 second', 'tenant ' || i % 2, 'event ' || i, 'thing.done', nullif(i % 5, 0)::text, 'application/json', '{}'
		FROM generate_series(1, 1000) i`)
	exec(t, conn, `INSERT INTO postlane.deliveries (subscription_id, created_at, tenant, event_id, event_type, asset)
		SELECT s.id, e.created_at, e.tenant, e.id, e.type, e.asset
		FROM postlane.events e JOIN postlane.subscriptions s USING (tenant)`)

	_, err = migrate.Up(t.Context(), connConfig(t, url), schema, migrate.Config{})
	is.NoErr(err)
	is.Equal(column(t, url, "SELECT count(*)::text FROM postlane.deliveries"), []string{"2000"})

	undone, err := migrate.DownTo(t.Context(), connConfig(t, url), schema, strings.SplitN(all[0], "_", 2)[0], migrate.Config{})
	is.NoErr(err)
	is.Equal(len(undone), len(all)-1)
	is.Equal(column(t, url, "SELECT count(*)::text FROM postlane.deliveries"), []string{"2000"})
	_, err = migrate.Up(t.Context(), connConfig(t, url), schema, migrate.Config{})
	is.NoErr(err)
}

// BC-64: the down parts work, leave nothing, and the way up leads to the same
// schema again.
func TestBC64_DownOneByOneAndUpAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.EmptyURL(t)
	config, schema, all := connConfig(t, url), db.Schema(), names(t)
	empty := objects(t, url)
	_, err := migrate.Up(t.Context(), config, schema, migrate.Config{})
	is.NoErr(err)
	before := objects(t, url)

	// Around each version, on the way down.
	for _, name := range slices.Backward(all) {
		at := objects(t, url)
		undone, err := migrate.Down(t.Context(), config, schema, migrate.Config{})
		is.NoErr(err)
		is.Equal(undone, name)
		applied, err := migrate.Up(t.Context(), config, upTo(t, name), migrate.Config{})
		is.NoErr(err)
		is.Equal(applied, []string{name})
		equal(t, objects(t, url), at)
		_, err = migrate.Down(t.Context(), config, schema, migrate.Config{})
		is.NoErr(err)
	}
	equal(t, withoutVersions(objects(t, url)), empty)

	_, err = migrate.Up(t.Context(), config, schema, migrate.Config{})
	is.NoErr(err)
	equal(t, objects(t, url), before)
}

// names returns the names of the migrations.
func names(t *testing.T) []string {
	t.Helper()
	all, err := fs.Glob(db.Schema(), "*.sql")
	is.New(t).NoErr(err)
	return all
}

// only returns some of the migrations.
func only(t *testing.T, names ...string) fs.FS {
	t.Helper()
	some := files{}.fs()
	for _, name := range names {
		content, err := fs.ReadFile(db.Schema(), name)
		is.New(t).NoErr(err)
		some[name] = &fstest.MapFile{Data: content}
	}
	return some
}

// upTo returns the migrations up to and with one.
func upTo(t *testing.T, last string) fs.FS {
	t.Helper()
	return only(t, slices.DeleteFunc(names(t), func(name string) bool { return name > last })...)
}

// objects describes everything in a database that is not PostgreSQL's own.
func objects(t *testing.T, url string) []string {
	t.Helper()
	is := is.New(t)
	conn, err := pgx.Connect(t.Context(), url)
	is.NoErr(err)
	defer conn.Close(context.Background())
	query, err := os.ReadFile(path.Join("testdata", "objects.sql"))
	is.NoErr(err)
	rows, err := conn.Query(t.Context(), string(query))
	is.NoErr(err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	is.NoErr(err)
	return lines
}

func withoutVersions(objects []string) []string {
	return slices.DeleteFunc(objects, func(line string) bool { return strings.Contains(line, "schema_migrations") })
}

func equal(t *testing.T, got, want []string) {
	t.Helper()
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("there is now: %s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("is missing: %s", line)
		}
	}
}
