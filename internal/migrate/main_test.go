package migrate_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/internal/migrate"
)

// Make this test binary a process that migrates the database of that URL, with
// the real schema or, where the other is set, with the statement in it.
const (
	childURL = "POSTLANE_TEST_MIGRATE_URL"
	childSQL = "POSTLANE_TEST_MIGRATE_SQL"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		os.Exit(migrateAsChild(url, os.Getenv(childSQL)))
	}
	goleak.VerifyTestMain(m)
}

func migrateAsChild(url, sql string) int {
	schema := db.Schema()
	if sql != "" {
		schema = files{"0001_child.sql": sql}.fs()
	}
	config, err := pgx.ParseConfig(url)
	if err == nil {
		var applied []string
		applied, err = migrate.Up(context.Background(), config, schema, migrate.Config{})
		fmt.Println(strings.Join(applied, " "))
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// files are migrations by name: what is applied, and after a line "--" what
// undoes it. A first line may be an option of migrate:up.
type files map[string]string

func (f files) fs() fstest.MapFS {
	made := fstest.MapFS{}
	for name, text := range f {
		up, down, _ := strings.Cut(text, "\n--\n")
		option := ""
		if rest, found := strings.CutPrefix(up, "transaction:false\n"); found {
			up, option = rest, " transaction:false"
		}
		made[name] = &fstest.MapFile{Data: []byte("-- migrate:up" + option + "\n" + up + "\n-- migrate:down\n" + down + "\n")}
	}
	return made
}

// connConfig is what Up and its like take, for a URL.
func connConfig(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	is.New(t).NoErr(err)
	return config
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	is.New(t).NoErr(err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	is.New(t).NoErr(err)
}

// column returns the first column of what a query finds.
func column(t *testing.T, url, sql string, arguments ...any) []string {
	t.Helper()
	is := is.New(t)
	rows, err := connect(t, url).Query(t.Context(), sql, arguments...)
	is.NoErr(err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	is.NoErr(err)
	return values
}

func versions(t *testing.T, url string) []string {
	t.Helper()
	return column(t, url, "SELECT version FROM public.schema_migrations ORDER BY version")
}

// until asks again and again until a query returns true.
func until(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var yes bool
		is.New(t).NoErr(conn.QueryRow(t.Context(), sql).Scan(&yes))
		if yes {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal(sql, ": never")
		case <-tick.C:
		}
	}
}

// lacks skips a test that needs a tool which is not there, or fails it where
// the whole suite has to run.
func lacks(t *testing.T, format string, arguments ...any) {
	t.Helper()
	if os.Getenv("POSTLANE_TEST_COMPLETE") != "" {
		t.Fatalf(format, arguments...)
	}
	t.Skipf(format, arguments...)
}
