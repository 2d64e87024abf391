package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/cli"
	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// command runs postlane with its flags after the command's name, on a database.
type command struct {
	t   *testing.T
	url string
}

// run returns the exit code and what was printed.
func (c command) run(args ...string) (code int, out, errOut string) {
	c.t.Helper()
	var o, e bytes.Buffer
	full := append([]string{"postlane"}, args[:2]...)
	full = append(append(full, "-database-url", c.url), args[2:]...)
	code = cli.Run(c.t.Context(), full, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

// object runs a command that succeeds, and reads the JSON that it prints.
func (c command) object(args ...string) map[string]any {
	c.t.Helper()
	code, out, errOut := c.run(args...)
	if code != 0 {
		c.t.Fatalf("%v exits %d: %s", args, code, errOut)
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		c.t.Fatalf("%v prints %q: %v", args, out, err)
	}
	return v
}

func TestKeys(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := command{t, pgtest.URL(t)}
	made := c.object("keys", "create", "-json", "-name", "billing", "-tenant", "acme", "-scope", "read")
	text := made["key"].(string)
	is.True(strings.HasPrefix(text, "plk_"))
	is.Equal(made["tenant"], "acme")
	c.object("keys", "create", "-json", "-name", "on call", "-operator")
	code, out, _ := c.run("keys", "list")
	is.Equal(code, 0)
	is.True(strings.Contains(out, "billing") && strings.Contains(out, "(operator)") && !strings.Contains(out, text))
	listed := c.object("keys", "list", "-json", "-tenant", "acme")["data"].([]any)
	is.Equal(len(listed), 1)
	is.Equal(listed[0].(map[string]any)["revoked_at"], nil)

	conn, err := pgx.Connect(t.Context(), c.url)
	is.NoErr(err)
	defer conn.Close(context.Background())
	code, out, _ = c.run("keys", "revoke", made["id"].(string))
	is.Equal(code, 0)
	is.True(strings.Contains(out, "revoked"))
	var revoked bool
	is.NoErr(conn.QueryRow(t.Context(), `SELECT revoked_at IS NOT NULL FROM postlane.api_keys WHERE name = 'billing'`).Scan(&revoked))
	is.True(revoked)
	is.True(c.object("keys", "revoke", "-json", made["id"].(string))["revoked_at"] != nil) // again is fine

	for _, wrong := range [][]string{
		{"keys", "create", "-name", "x"}, {"keys", "create", "-name", "x", "-tenant", "a", "-operator"}, {"keys", "create", "-tenant", "a"},
		{"keys", "create", "-name", "x", "-tenant", "a", "-scope", "all"}, {"keys", "list", "-limit", "0"}, {"keys", "revoke"}, {"keys", "lend"},
	} {
		code, out, errOut := c.run(wrong...)
		if code != 2 || out != "" && wrong[1] != "lend" || errOut == "" {
			t.Errorf("%v exits %d, prints %q and %q", wrong, code, out, errOut)
		}
	}
	code, out, errOut := c.run("keys", "revoke", "key_1")
	is.Equal(code, 1)
	is.Equal(out, "")
	is.True(strings.Contains(errOut, keys.ErrNotFound.Error()))
}

// A range of dead letters, counted and retried from the command line alone.
func TestRetryRange(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := command{t, pgtest.URL(t)}
	conn, err := pgx.Connect(t.Context(), c.url)
	is.NoErr(err)
	defer conn.Close(context.Background())
	for _, sql := range []string{
		`INSERT INTO postlane.subscriptions (id, tenant, url) VALUES (7, 'acme', 'https://example.com')`,
		`INSERT INTO postlane.events (seq, tenant, id, type, content_type, payload) SELECT n, 'acme', 'e' || n, 'a', 'application/json', '{}' FROM generate_series(1, 450) n`,
		`INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, created_at, settled_at, attempts, state)
			SELECT 7, seq, tenant, id, type, created_at, now(), 1, 'dead' FROM postlane.events`,
		`SELECT setval('postlane.delivery_seq', 450)`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		is.NoErr(err)
	}
	did := c.object("deliveries", "retry-range", "-json", "-dry-run", "sub_7")
	is.Equal([]any{did["matched"], did["retried"]}, []any{450.0, 0.0})
	did = c.object("deliveries", "retry-range", "-json", "-max", "50", "sub_7")
	is.Equal([]any{did["matched"], did["retried"]}, []any{450.0, 50.0})
	code, out, _ := c.run("deliveries", "retry-range", "sub_7")
	is.Equal(code, 0)
	is.True(strings.HasPrefix(out, "400 dead letters match; 400 are retried, 0 were skipped"))
	code, _, _ = c.run("deliveries", "retry-range", "-max", "0", "sub_7")
	is.Equal(code, 2)
	code, _, _ = c.run("deliveries", "retry-range", "sub_8")
	is.Equal(code, 1)
	var who string
	is.NoErr(conn.QueryRow(t.Context(), `SELECT DISTINCT revived_by FROM postlane.revivals`).Scan(&who))
	is.True(strings.HasPrefix(who, "cli"))

	oldest := c.object("deliveries", "list", "-json", "-oldest", "-limit", "3", "sub_7")
	is.Equal(oldest["data"].([]any)[0].(map[string]any)["id"], "dlv_1")
	next := c.object("deliveries", "list", "-json", "-oldest", "-limit", "3", "-after", oldest["next_cursor"].(string), "sub_7")
	is.Equal(next["data"].([]any)[0].(map[string]any)["id"], "dlv_4")
	is.Equal(len(c.object("audit", "list", "-json", "-tenant", "acme")["data"].([]any)), 2) // not the dry run
}
