package pgtest

import (
	"errors"
	"os"
	"testing"

	"github.com/postlane-go/postlane/internal/postgres"
)

// ThroughPooler returns a URL that leads to the database of a URL by a PgBouncer of the
// test's own. Without PgBouncer on this machine the test is skipped, or fails where the
// whole suite has to run.
func ThroughPooler(t testing.TB, url string, mode postgres.PoolMode) string {
	t.Helper()
	pooler, err := postgres.StartPooler(t.Context(), t.TempDir(), url, mode)
	if errors.Is(err, postgres.ErrNoPooler) && os.Getenv("POSTLANE_TEST_COMPLETE") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pooler.Stop)
	through, err := pooler.URL(url)
	if err != nil {
		t.Fatal(err)
	}
	return through
}
