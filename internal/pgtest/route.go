package pgtest

import (
	"cmp"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/internal/pgtest/server"
)

// QueryModeEnv names the environment variable that may hold one of pgx's query
// execution modes, such as simple_protocol, for the pools and URLs of tests. The
// default is pgx's own or, behind a pooler in transaction mode, cache_describe: it
// prepares nothing by name.
const QueryModeEnv = "POSTLANE_TEST_QUERY_MODE"

// routed returns the URL by which a test reaches its database: through the pooler if
// there is one, and in the query mode that the environment asks for.
func routed(shared server.Server, address *url.URL) string {
	mode := os.Getenv(QueryModeEnv)
	to := *address
	if shared.Pooler != "" {
		to.Host = shared.Pooler
		mode = cmp.Or(mode, "cache_describe")
	}
	if mode != "" {
		query := to.Query()
		query.Set("default_query_exec_mode", mode)
		to.RawQuery = query.Encode()
	}
	return to.String()
}

// Direct returns the address of a pool's database without the pooler that may be in
// between: for LISTEN, and for a test of what needs a session.
func Direct(t testing.TB, pool *pgxpool.Pool) *pgx.ConnConfig {
	t.Helper()
	config := pool.Config().ConnConfig.Copy()
	shared, err := server.Use()
	if err != nil {
		t.Fatal(err)
	}
	if shared.Pooler == "" {
		return config
	}
	to, err := pgx.ParseConfig(shared.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.Host, config.Port, config.User, config.Password = to.Host, to.Port, to.User, to.Password
	return config
}
