package pgtest_test

import (
	"testing"

	"github.com/matryer/is"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/internal/pgtest"
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
