package migrate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/pgtest"
)

func TestUpAndDown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.EmptyURL(t)
	config := connConfig(t, url)
	schema := files{
		"0001_a.sql": "CREATE TABLE public.a ();\n--\nDROP TABLE public.a;",
		"0002_b.sql": "CREATE TABLE public.b (n int); INSERT INTO public.b VALUES (1);\n--\nDROP TABLE public.b;",
		"0003_c.sql": "transaction:false\nCREATE INDEX CONCURRENTLY b_n ON public.b (n);\n--\nDROP INDEX public.b_n;",
	}.fs()
	var steps []string
	watch := migrate.Config{Progress: func(s migrate.Step) {
		verb, _, _ := strings.Cut(s.String(), " in ")
		steps = append(steps, verb)
	}}

	applied, err := migrate.Up(t.Context(), config, schema, watch)
	is.NoErr(err)
	is.Equal(applied, []string{"0001_a.sql", "0002_b.sql", "0003_c.sql"})
	applied, err = migrate.Up(t.Context(), config, schema, watch)
	is.NoErr(err)
	is.Equal(len(applied), 0)

	const locks = "SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
	is.Equal(column(t, url, locks), []string{"0"}) // given back before Up returns

	undone, err := migrate.Down(t.Context(), config, schema, watch)
	is.NoErr(err)
	is.Equal(undone, "0003_c.sql")
	is.Equal(versions(t, url), []string{"0001", "0002"})

	_, err = migrate.DownTo(t.Context(), config, schema, "0009", watch)
	is.True(err != nil) // there is none
	all, err := migrate.DownTo(t.Context(), config, schema, "", watch)
	is.NoErr(err)
	is.Equal(all, []string{"0002_b.sql", "0001_a.sql"})
	undone, err = migrate.Down(t.Context(), config, schema, watch)
	is.NoErr(err)
	is.Equal(undone, "") // nothing is left

	is.Equal(steps, []string{
		"applied: 0001_a.sql", "applied: 0002_b.sql", "applied: 0003_c.sql",
		"undone:  0003_c.sql", "undone:  0002_b.sql", "undone:  0001_a.sql",
	})
}

func TestFailureKeepsWhatWasBefore(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.EmptyURL(t)
	schema := files{
		"0001_a.sql": "CREATE TABLE public.a ();",
		"0002_b.sql": "CREATE TABLE public.b ();\n\nCREATE TABLE public.b_too (n intt);",
	}
	applied, err := migrate.Up(t.Context(), connConfig(t, url), schema.fs(), migrate.Config{})
	is.Equal(applied, []string{"0001_a.sql"})
	is.True(err != nil)
	is.True(strings.Contains(err.Error(), `migration 0002_b.sql:4, up: ERROR: type "intt" does not exist`))
	is.Equal(versions(t, url), []string{"0001"})
	is.Equal(column(t, url, "SELECT relname::text FROM pg_class WHERE relname ~ '^b'"), []string{}) // nothing half done

	schema["0002_b.sql"] = "CREATE TABLE public.b ();"
	applied, err = migrate.Up(t.Context(), connConfig(t, url), schema.fs(), migrate.Config{})
	is.NoErr(err)
	is.Equal(applied, []string{"0002_b.sql"})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pool := pgtest.NewEmpty(t)
	config := pool.Config().ConnConfig

	err := migrate.Check(t.Context(), pool, db.Schema())
	is.True(errors.Is(err, migrate.ErrBehind))
	is.True(strings.Contains(err.Error(), "0004_webhooks.sql"))
	is.True(strings.Contains(err.Error(), "run `postlane migrate up`"))

	_, err = migrate.Up(t.Context(), config, db.Schema(), migrate.Config{})
	is.NoErr(err)
	is.NoErr(migrate.Check(t.Context(), pool, db.Schema()))

	// An application's own migrations in the same table are none of ours.
	_, err = pool.Exec(t.Context(), "INSERT INTO public.schema_migrations VALUES ('20240131120000'), ('1')")
	is.NoErr(err)
	is.NoErr(migrate.Check(t.Context(), pool, db.Schema()))
	undone, err := migrate.Down(t.Context(), config, db.Schema(), migrate.Config{})
	is.NoErr(err)
	err = migrate.Check(t.Context(), pool, db.Schema())
	is.True(errors.Is(err, migrate.ErrBehind))
	is.True(strings.Contains(err.Error(), "["+undone+"]"))
	_, err = migrate.Up(t.Context(), config, db.Schema(), migrate.Config{})
	is.NoErr(err)

	_, err = pool.Exec(t.Context(), "INSERT INTO public.schema_migrations VALUES ('9999')")
	is.NoErr(err)
	err = migrate.Check(t.Context(), pool, db.Schema())
	is.True(errors.Is(err, migrate.ErrAhead))
	is.True(strings.Contains(err.Error(), "[9999]"))
	list, err := migrate.List(t.Context(), pool, db.Schema())
	is.NoErr(err)
	is.Equal(list[len(list)-1], migrate.Status{Version: "9999", Applied: true})
}
