package pgtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/pgtest/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			pool := pgtest.New(t)
			_, err := pool.Exec(t.Context(), "CREATE TABLE postlane.mine AS SELECT 1 AS n") // the schema is there
			is.NoErr(err)
		})
	}
}

func TestEmptyHasNoSchema(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var has bool
	err := pgtest.NewEmpty(t).QueryRow(t.Context(), "SELECT to_regnamespace('postlane') IS NOT NULL").Scan(&has)
	is.NoErr(err)
	is.True(!has)
}

// childEnv names what TestChild, run by this test binary once more, is to do.
const childEnv = "POSTLANE_TEST_PGTEST_CHILD"

func TestChild(t *testing.T) {
	t.Parallel()
	if os.Getenv(childEnv) == "" {
		return
	}
	pool := pgtest.New(t)
	t.Log("URL", pool.Config().ConnString())
	switch os.Getenv(childEnv) {
	case "fail":
		t.Fatal("on purpose")
	case "leave a connection":
		if _, err := pgx.Connect(t.Context(), pool.Config().ConnString()); err != nil {
			t.Fatal(err)
		}
	case "hold a connection":
		if _, err := pool.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDatabasesAreDroppedUnlessTheTestFails(t *testing.T) {
	t.Parallel()
	for does, want := range map[string]struct {
		passes, kept bool
		says         string
	}{
		"pass":               {passes: true},
		"leave a connection": {passes: true},
		"fail":               {kept: true, says: "its database is kept: psql 'URL'"},
		"hold a connection":  {kept: true, says: "1 connections of the test's pool are still in use"},
	} {
		t.Run(does, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			shared, err := server.Use()
			is.NoErr(err)
			child := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
			// Not kept by a server that has to stay up for it: it is ours.
			child.Env = append(os.Environ(), childEnv+"="+does, server.URLEnv+"="+shared.URL)
			said, err := child.CombinedOutput()
			url := regexp.MustCompile(`URL (\S+)`).FindSubmatch(said)
			is.True(url != nil)
			if passes := err == nil; passes != want.passes {
				t.Errorf("passes: %v\n%s", passes, said)
			}
			is.True(strings.Contains(string(said), strings.ReplaceAll(want.says, "URL", string(url[1]))))

			name := filepath.Base(strings.SplitN(string(url[1]), "?", 2)[0])
			is.True(strings.HasPrefix(name, "postlane_testchild_")) // says whose it is
			conn, err := pgx.Connect(t.Context(), shared.URL)
			is.NoErr(err)
			defer conn.Close(t.Context())
			var kept bool
			is.NoErr(conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&kept))
			is.Equal(kept, want.kept)
			if kept {
				_, err := conn.Exec(t.Context(), "DROP DATABASE "+name+" WITH (FORCE)")
				is.NoErr(err)
			}
		})
	}
}
