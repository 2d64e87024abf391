package pgtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/postlane-go/postlane/internal/postgres"
)

// Program returns the path of a program that comes with PostgreSQL's server, such as
// pg_dump. Without it on this machine the test is skipped, as by Lacks: not every package
// of the server has them all.
func Program(t testing.TB, name string) string {
	t.Helper()
	found, err := postgres.Find()
	if err != nil {
		Lacks(t, err)
	}
	program := filepath.Join(found.Dir, name)
	if _, err := os.Stat(program); err != nil {
		Lacks(t, err)
	}
	return program
}

// Lacks skips a test that needs what is not there, or fails it where the whole suite has
// to run.
func Lacks(t testing.TB, what error) {
	t.Helper()
	if os.Getenv("POSTLANE_TEST_COMPLETE") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}
