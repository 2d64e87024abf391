package pgtest

import (
	"errors"
	"testing"

	"github.com/postlane-go/postlane/internal/postgres"
)

// ThroughPooler returns a URL that leads to the database of a URL by a PgBouncer of the
// test's own. Without PgBouncer on this machine the test is skipped, or fails where the
// whole suite has to run.
func ThroughPooler(t testing.TB, url string, mode postgres.PoolMode) string {
	t.Helper()
	pooler, err := postgres.StartPooler(t.Context(), t.TempDir(), url, mode)
	if errors.Is(err, postgres.ErrNoPooler) {
		Lacks(t, err)
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
