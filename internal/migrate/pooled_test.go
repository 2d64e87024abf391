package migrate_test

import (
	"errors"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/postgres"
)

// The lock of whoever migrates would be on a session that others use next.
func TestMigratingTakesASession(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.EmptyURL(t)
	schema := files{"0001_t.sql": "CREATE TABLE public.t ();"}.fs()
	_, err := migrate.Up(t.Context(), connConfig(t, pgtest.ThroughPooler(t, url, postgres.TransactionMode)), schema, migrate.Config{})
	is.True(errors.Is(err, migrate.ErrPooled))
	is.Equal(column(t, url, "SELECT coalesce(to_regclass('public.schema_migrations')::text, 'none')"), []string{"none"})

	session := pgtest.ThroughPooler(t, url, postgres.SessionMode)
	_, err = migrate.Up(t.Context(), connConfig(t, session), schema, migrate.Config{})
	is.NoErr(err)
	is.Equal(versions(t, url), []string{"0001"})
}
