package cli_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/cli"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/outbox"
)

// shell runs postlane as a person would, on a database of its own.
type shell struct {
	t  *testing.T
	is *is.I
	// flags are added to every command that takes them.
	database string
	secret   string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	return &shell{t: t, is: is.New(t), database: pgtest.URL(t), secret: base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))}
}

// run runs a command line and returns its exit code and what it printed.
func (s *shell) run(stdin string, args ...string) (code int, out, errOut string) {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	code = cli.Run(s.t.Context(), append([]string{"postlane"}, args...), strings.NewReader(stdin), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// ok runs a command on the database with -json, which must succeed, and decodes the answer.
func (s *shell) ok(args ...string) map[string]any {
	s.t.Helper()
	code, out, errOut := s.run("", append(args, "-json", "-database-url", s.database)...)
	if code != 0 {
		s.t.Fatalf("%v: exit %d\n%s", args, code, errOut)
	}
	var v map[string]any
	s.is.NoErr(json.Unmarshal([]byte(out), &v))
	return v
}

func (s *shell) keyed(args ...string) map[string]any {
	s.t.Helper()
	return s.ok(append(args, "-secret-key", s.secret, "-mode", "development")...)
}

func (s *shell) subscribe() string {
	s.t.Helper()
	v := s.keyed("subscriptions", "create", "-tenant", "acme", "-url", "http://127.0.0.1:8099/a", "-event-types", "invoice.*")
	s.is.True(strings.HasPrefix(v["secret"].(string), "whsec_"))
	return v["id"].(string)
}

func data(v map[string]any) []any { return v["data"].([]any) }

func TestALifeFromTheCommandLine(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	id := s.subscribe()
	s.is.Equal(len(data(s.ok("subscriptions", "list"))), 1)
	s.is.Equal(len(data(s.ok("deliveries", "list", id))), 0) // [] and not null

	sent := s.ok("events", "send", "-tenant", "acme", "-type", "invoice.paid", "-asset", "i1", "-id", "e1", "-payload", `{"a":1}`)
	s.is.Equal(sent["duplicate"], false)
	again := s.ok("events", "send", "-tenant", "acme", "-type", "invoice.paid", "-asset", "i1", "-id", "e1", "-payload", `{"a":1}`)
	s.is.Equal(again["duplicate"], true)
	code, _, errOut := s.run("", "events", "send", "-tenant", "acme", "-type", "invoice.paid", "-asset", "i1", "-id", "e1", "-payload", `{"a":2}`, "-database-url", s.database)
	s.is.Equal(code, 1)
	s.is.True(strings.Contains(errOut, "another payload"))

	shown := s.ok("events", "show", "e1", "-tenant", "acme")
	s.is.Equal(shown["payload_bytes"], 7.0)
	pending := data(s.ok("deliveries", "list", id, "-state", "pending,dead"))
	s.is.Equal(len(pending), 1)
	delivery := pending[0].(map[string]any)
	s.is.Equal(delivery["settled_at"], nil) // null, never year 1
	s.is.Equal(len(data(s.ok("streams", "list", id))), 1)

	s.is.Equal(s.ok("subscriptions", "pause", id, "-reason", "maintenance")["state"], "paused")
	s.is.Equal(s.ok("subscriptions", "enable", id)["state"], "active")
	updated := s.keyed("subscriptions", "update", id, "-max-attempts", "3", "-rate-limit", "10/m")
	s.is.Equal([]any{updated["max_attempts"], updated["rate_limit"]}, []any{3.0, "10/m"})
	s.is.Equal(updated["url"], "http://127.0.0.1:8099/a") // nothing else moves
	s.is.True(strings.HasPrefix(s.keyed("subscriptions", "rotate-secret", id)["secret"].(string), "whsec_"))

	s.ok("deliveries", "discard", id, delivery["id"].(string), "-reason", "no longer of use")
	after := data(s.ok("deliveries", "list", id))[0].(map[string]any)
	s.is.Equal(after["state"], "discarded")
	s.is.Equal(after["reason"], "no longer of use")
	s.ok("subscriptions", "delete", id)
	s.is.Equal(len(data(s.ok("subscriptions", "list"))), 0)
}

func TestPayloadFromStandardInput(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	code, out, errOut := s.run(`{"from":"stdin"}`, "events", "send", "-tenant", "acme", "-type", "a.b", "-database-url", s.database)
	s.is.Equal(errOut, "")
	s.is.Equal(code, 0)
	s.is.True(strings.HasPrefix(out, "evt_"))
}

func TestSecretsAreShownOnce(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	id := s.subscribe()
	for _, args := range [][]string{{"subscriptions", "list"}, {"subscriptions", "show", id}, {"subscriptions", "pause", id}} {
		for _, form := range [][]string{{}, {"-json"}} {
			_, out, _ := s.run("", append(append(args, "-database-url", s.database), form...)...)
			s.is.True(!strings.Contains(out, "whsec_"))
		}
	}
}

func TestBC58_EveryFailureHasItsExitCode(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	id := s.subscribe()
	for i := range 3 {
		s.ok("events", "send", "-tenant", "acme", "-type", "invoice.paid", "-asset", fmt.Sprint("i", i), "-payload", "{}")
	}
	list := data(s.ok("deliveries", "list", id))
	first := list[0].(map[string]any)["id"].(string)
	second := list[1].(map[string]any)["id"].(string)
	db := []string{"-database-url", s.database}
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no command":                 {nil, 2, "say which command"},
		"unknown command":            {[]string{"bogus"}, 2, `there is no command "bogus"`},
		"unknown subcommand":         {[]string{"migrate", "sideways"}, 2, `there is no command "sideways"`},
		"unknown with flags":         {[]string{"bogus", "-json"}, 2, `there is no command "bogus"`},
		"unknown flag":               {[]string{"migrate", "up", "-bogus"}, 2, "bogus"},
		"missing argument":           {append([]string{"subscriptions", "show"}, db...), 2, "needs SUBSCRIPTION"},
		"surplus argument":           {append([]string{"migrate", "up", "now"}, db...), 2, `unexpected "now"`},
		"no database":                {[]string{"subscriptions", "list"}, 2, "POSTLANE_DATABASE_URL (or -database-url) is not set"},
		"malformed database":         {[]string{"subscriptions", "list", "-database-url", "postgres://u:hunter2@[::1"}, 2, "is not a PostgreSQL URL"},
		"no such server":             {[]string{"subscriptions", "list", "-database-url", "postgres://127.0.0.1:1/x?connect_timeout=2"}, 1, "cannot connect"},
		"no such subscription":       {append([]string{"subscriptions", "show", "sub_1"}, db...), 1, "not found"},
		"not an id":                  {append([]string{"subscriptions", "show", "x"}, db...), 1, "not a subscription id"},
		"unknown state":              {append([]string{"deliveries", "list", id, "-state", "lost"}, db...), 2, `"lost" is none of pending, delivering`},
		"refused URL":                {append([]string{"subscriptions", "create", "-tenant", "t", "-url", "https://169.254.169.254/", "-secret-key", s.secret}, db...), 1, "address is not allowed"},
		"bad secret key":             {append([]string{"subscriptions", "create", "-tenant", "t", "-url", "https://x.example", "-secret-key", "c2hvcnQ="}, db...), 2, "openssl rand -base64 32"},
		"invalid event":              {append([]string{"events", "send", "-tenant", "t", "-type", "not a type", "-payload", "{}"}, db...), 2, "Type"},
		"one of three fails":         {append([]string{"deliveries", "discard", id, first, "dlv_999999", second, "-reason", "r"}, db...), 1, "1 of 3 failed"},
		"retry of what is no letter": {append([]string{"deliveries", "retry", id, first}, db...), 1, "not a dead letter"},
	} {
		code, _, errOut := s.run("", test.args...)
		if code != test.code || !strings.Contains(errOut, test.says) {
			t.Errorf("%s: exit %d, want %d with %q; stderr:\n%s", name, code, test.code, test.says, errOut)
		}
		if strings.Contains(errOut, "hunter2") {
			t.Errorf("%s: the password is shown", name)
		}
	}
}

func TestEverythingWrongIsToldAtOnce(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	code, _, errOut := s.run("", "serve", "-mode", "staging", "-listen", "nowhere", "-relay", "pigeons")
	s.is.Equal(code, 2)
	for _, name := range []string{"POSTLANE_DATABASE_URL", "POSTLANE_MODE", "POSTLANE_SECRET_KEY", "POSTLANE_LISTEN", "POSTLANE_RELAY"} {
		s.is.True(strings.Contains(errOut, name))
	}
}

func TestSecretKeyFromAFile(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	file := filepath.Join(t.TempDir(), "keys")
	older := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{8}, 32))
	s.is.NoErr(os.WriteFile(file, []byte(s.secret+"\n"+older+"\n"), 0o600))
	v := s.ok("subscriptions", "create", "-tenant", "acme", "-url", "https://hooks.example.com/in", "-secret-key-file", file)
	// Sealed with the first: that key alone opens it.
	s.is.True(strings.HasPrefix(s.keyed("subscriptions", "rotate-secret", v["id"].(string))["secret"].(string), "whsec_"))
	code, _, errOut := s.run("", "subscriptions", "create", "-tenant", "t", "-url", "https://x.example", "-database-url", s.database, "-secret-key-file", file+".gone")
	s.is.Equal(code, 2)
	s.is.True(strings.Contains(errOut, "POSTLANE_SECRET_KEY_FILE"))
}

func TestMigrateUpDownAndStatus(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.database = pgtest.EmptyURL(t)
	code, _, errOut := s.run("", "serve", "-database-url", s.database, "-secret-key", s.secret, "-listen", "127.0.0.1:0")
	s.is.Equal(code, 1)
	s.is.True(strings.Contains(errOut, "postlane migrate up"))
	applied := len(s.ok("migrate", "up")["applied"].([]any))
	s.is.True(applied >= 2)
	s.is.Equal(len(s.ok("migrate", "up")["applied"].([]any)), 0)
	s.is.True(s.ok("migrate", "down")["undone"] != "")
	pending := 0
	for _, m := range s.ok("migrate", "status")["migrations"].([]any) {
		if m.(map[string]any)["applied"] == false {
			pending++
		}
	}
	s.is.Equal(pending, 1)
	s.is.Equal(len(s.ok("migrate", "up")["applied"].([]any)), 1)
}

func TestBC60_AnOperatorNeedsNoService(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	id := s.subscribe()
	s.ok("events", "send", "-tenant", "acme", "-type", "invoice.paid", "-asset", "stuck", "-payload", "{}")
	streams := data(s.ok("streams", "list", id))
	head := streams[0].(map[string]any)["head"].(map[string]any)
	s.ok("deliveries", "discard", id, head["id"].(string), "-reason", "frees the key")
	s.is.Equal(len(data(s.ok("streams", "list", id))), 0)

	s.parked("m0", "m1", "m2")
	s.is.Equal(s.ok("outbox", "pending")["parked"], 3.0)
	first := s.ok("outbox", "list", "-state", "parked", "-limit", "2")
	s.is.Equal(len(data(first)), 2)
	s.is.Equal(data(first)[0].(map[string]any)["error"], "the broker says no")
	rest := s.ok("outbox", "list", "-state", "parked", "-after", first["next_cursor"].(string))
	s.is.Equal(data(rest)[0].(map[string]any)["id"], "m2")
	s.is.Equal(s.ok("outbox", "retry", "m1")["retried"], []any{"m1"})
	code, out, errOut := s.run("", "outbox", "retry", "m1", "m2", "-database-url", s.database)
	s.is.Equal(code, 1) // m1 is not parked any more
	s.is.True(strings.Contains(out, "retried m2") && strings.Contains(errOut, "1 of 2"))
	s.is.Equal(s.ok("outbox", "retry", "-all-parked", "-queue", "another")["retried"], []any{})
	s.is.Equal(s.ok("outbox", "retry", "-all-parked")["retried"], []any{"m0"})
	s.is.Equal(s.ok("outbox", "retry", "-all-parked")["retried"], []any{}) // safe to repeat
	s.is.Equal(s.ok("outbox", "pending")["pending"], 3.0)
}

// parked stages messages and gives them up.
func (s *shell) parked(ids ...string) {
	s.t.Helper()
	pool, err := pgxpool.New(s.t.Context(), s.database)
	s.is.NoErr(err)
	defer pool.Close()
	store, err := outbox.NewPostgres(pool, outbox.StoreConfig{})
	s.is.NoErr(err)
	s.is.NoErr(pgx.BeginFunc(s.t.Context(), pool, func(tx pgx.Tx) error {
		for _, id := range ids {
			if _, err := store.Stage(s.t.Context(), tx, outbox.Message{ID: id, Topic: "t"}); err != nil {
				return err
			}
		}
		return nil
	}))
	claims, err := store.Claim(s.t.Context(), len(ids))
	s.is.NoErr(err)
	for _, c := range claims {
		s.is.NoErr(store.Fail(s.t.Context(), outbox.Failure{Claim: c, Error: "the broker says no", Park: true}))
	}
}

func TestReceiveJudges(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out, errOut lockedBuffer
	done := make(chan int, 1)
	go func() {
		done <- cli.Run(ctx, []string{"postlane", "receive", "-address", "127.0.0.1:0", "-json"}, strings.NewReader(""), &out, &errOut)
	}()
	address := errOut.await(t, "receiving on http://")
	conn, err := net.DialTimeout("tcp", address, time.Second)
	is.NoErr(err)
	is.NoErr(conn.Close())
	cancel()
	is.Equal(<-done, 0)
	var v map[string]any
	is.NoErr(json.Unmarshal([]byte(out.String()), &v))
	is.Equal(v["out_of_order"], 0.0)
}
