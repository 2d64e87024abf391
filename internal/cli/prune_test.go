package cli_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// BC-60: what a full database needs is done without a server.
func TestBC60_PruneFromTheCommandLine(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	conn, err := pgx.Connect(t.Context(), s.database)
	s.is.NoErr(err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, created_at, settled_at, attempts, state)
		SELECT 1, n, 'acme', 'e' || n, 'a.b', now() - interval '3 days', now() - interval '3 days', 1, 'delivered' FROM generate_series(1, 100000) n`)
	s.is.NoErr(err)
	code, out, _ := s.run("", "prune", "-database-url", s.database)
	s.is.Equal(code, 0)
	s.is.True(strings.Contains(out, "removed 0 deliveries") && strings.Contains(out, "kept for ever"))
	s.is.Equal(s.ok("prune", "-keep-settled", "4d")["deliveries"], 0.)
	s.is.Equal(s.ok("prune", "-keep-settled", "2d")["deliveries"], 100000.)
	s.is.Equal(s.ok("prune", "-keep-settled", "48h")["deliveries"], 0.)
}

func TestPruneRefusesAllThatIsWrongAtOnce(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	code, _, errOut := s.run("", "prune", "-database-url", s.database, "-keep-settled", "soon", "-keep-dead", "-1h", "-keep-events", "1s", "-keep-audit", "99999999d", "-keep-messages", "0d")
	s.is.Equal(code, 2)
	for _, name := range []string{"POSTLANE_KEEP_SETTLED", "POSTLANE_KEEP_DEAD", "POSTLANE_KEEP_EVENTS", "POSTLANE_KEEP_MESSAGES", "POSTLANE_KEEP_AUDIT"} {
		s.is.True(strings.Contains(errOut, name))
	}
}
