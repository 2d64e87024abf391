package cli_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/postlane-go/postlane/internal/pgtest"
)

// lines are the JSON objects that a command printed, one a line.
func lines(s *shell, out string) (list []map[string]any) {
	s.t.Helper()
	for line := range strings.Lines(out) {
		var v map[string]any
		s.is.NoErr(json.Unmarshal([]byte(line), &v))
		list = append(list, v)
	}
	return list
}

// nameOf is how output names a database.
func nameOf(s *shell, address string) string {
	u, err := url.Parse(address)
	s.is.NoErr(err)
	return u.Host + u.Path
}

func TestCommandsOnSeveralDatabases(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	urls := []string{s.database, pgtest.EmptyURL(t)}
	names := []string{nameOf(s, urls[0]), nameOf(s, urls[1])}
	all := []string{"-database-url", strings.Join(urls, "\n")}
	run := func(args ...string) string {
		t.Helper()
		code, out, errOut := s.run("", append(args, all...)...)
		if code != 0 {
			t.Fatalf("%v: exit %d\n%s", args, code, errOut)
		}
		return out
	}
	refused := func(code int, says string, args ...string) {
		t.Helper()
		got, out, errOut := s.run("", append(args, all...)...)
		if got != code || !strings.Contains(out+errOut, says) {
			t.Errorf("%v: exit %d and not %d: %s%s", args, got, code, out, errOut)
		}
	}

	out := run("migrate", "up")
	s.is.True(strings.HasPrefix(out, names[0]+":\nthe schema is up to date\n"+names[1]+":\napplied "))
	for i, v := range lines(s, run("migrate", "status", "-json")) {
		s.is.Equal(v["database"], names[i])
		s.is.True(len(v["migrations"].([]any)) > 10)
	}
	for i, v := range lines(s, run("prune", "-json")) {
		s.is.Equal(v["database"], names[i])
		s.is.Equal(v["events"], 0.)
	}

	refused(2, "-database which it is about: "+names[0]+", "+names[1], "keys", "create", "-name", "x", "-operator")
	refused(2, "the databases of POSTLANE_DATABASE_URL are", "keys", "list", "-database", "nowhere/x")
	var made map[string]any
	s.is.NoErr(json.Unmarshal([]byte(run("keys", "create", "-json", "-name", "shop", "-tenant", "acme", "-database", names[1])), &made))
	s.is.Equal(made["database"], nil) // it was said
	listed := lines(s, run("keys", "list", "-json"))
	s.is.Equal(len(listed[0]["data"].([]any)), 0)
	s.is.Equal(len(listed[1]["data"].([]any)), 1)
	revoked := lines(s, run("keys", "revoke", "-json", made["id"].(string)))[0]
	s.is.Equal(revoked["database"], names[1])
	refused(1, "there is no such key", "keys", "revoke", "key_1")

	sub := lines(s, run("subscriptions", "create", "-json", "-tenant", "acme", "-url", "http://127.0.0.1:8099/a", "-mode", "development", "-secret-key", s.secret, "-database", names[1]))[0]
	id := sub["id"].(string)
	s.is.Equal(lines(s, run("subscriptions", "pause", "-json", id))[0]["database"], names[1])
	s.is.True(strings.HasPrefix(run("deliveries", "list", id), names[1]+":\n"))
	s.is.Equal(len(lines(s, run("subscriptions", "list", "-json"))), 2)
	refused(1, "not found", "subscriptions", "show", "sub_1")
	run("outbox", "pending", "-json")
	run("audit", "list", "-json")
	refused(2, "has 2 databases; this works with one", "dev", "-once")

	// One that is away stops no other.
	all[1] = "postgres://nobody:secret@127.0.0.1:1/away " + urls[0]
	code, out, errOut := s.run("", append([]string{"keys", "list", "-json"}, all...)...)
	s.is.Equal(code, 1)
	s.is.Equal(lines(s, out)[0]["database"], names[0])
	s.is.True(strings.Contains(errOut, "127.0.0.1:1/away: cannot connect") && !strings.Contains(errOut, "secret"))
	all[1] = "postgres://nobody@127.0.0.1:1/away " + urls[1]
	s.is.Equal(lines(s, run("subscriptions", "show", "-json", id))[0]["id"], id)
	refused(1, "is in no database that answers", "subscriptions", "show", "sub_1")
}
