package migrate_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/pgtest"
)

func TestADatabaseOfAnotherEncodingIsRefused(t *testing.T) {
	t.Parallel()
	beside := pgtest.EmptyURL(t)
	conn := connect(t, beside)
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		is := is.New(t)
		name := conn.Config().Database + "_" + strings.ToLower(encoding[:3])
		exec(t, conn, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING '"+encoding+"' LC_COLLATE 'C' LC_CTYPE 'C'")
		address, err := url.Parse(beside)
		is.NoErr(err)
		address.Path = "/" + name
		_, err = migrate.Up(t.Context(), connConfig(t, address.String()), files{"0001_t.sql": "CREATE TABLE public.t ();"}.fs(), migrate.Config{})
		is.True(err != nil)
		is.True(strings.Contains(err.Error(), "encoding is "+encoding)) // and says what to do
		_, err = conn.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		is.NoErr(err)
	}
}
