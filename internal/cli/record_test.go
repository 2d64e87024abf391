package cli_test

import (
	"fmt"
	"os"
	"os/user"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// entry is the newest of the audit log.
func (s *shell) entry() map[string]any {
	s.t.Helper()
	return data(s.ok("audit", "list", "-limit", "1"))[0].(map[string]any)
}

// What is changed from the command line is on record as what is changed otherwise: who,
// what, and what came of it.
func TestChangesAreOnRecord(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	me, err := user.Current()
	s.is.NoErr(err)
	host, err := os.Hostname()
	s.is.NoErr(err)
	recorded := func(action, target, outcome string) map[string]any {
		t.Helper()
		e := s.entry()
		if e["action"] != action || e["outcome"] != outcome || (target != "" && e["target"] != target) {
			t.Fatalf("on record is %v and not %s of %s: %s", e, action, target, outcome)
		}
		s.is.Equal(e["actor"], "cli")
		s.is.Equal(e["actor_name"], me.Username+"@"+host)
		s.is.Equal(e["status"], nil)
		return e
	}
	id := s.subscribe()
	s.is.Equal(recorded("create-subscription", id, "ok")["tenant"], "acme")
	s.ok("subscriptions", "pause", id, "-reason", "a look at it")
	s.is.Equal(recorded("pause-subscription", id, "ok")["detail"], "a look at it")
	s.ok("subscriptions", "enable", id)
	recorded("enable-subscription", id, "ok")
	s.keyed("subscriptions", "update", id, "-description", "x")
	recorded("update-subscription", id, "ok")
	secret := s.keyed("subscriptions", "rotate-secret", id, "-overlap", "1h")["secret"].(string)
	recorded("rotate-secret", id, "ok")
	code, _, _ := s.run("", "subscriptions", "update", id, "-url", "ftp://127.0.0.1/", "-database-url", s.database, "-secret-key", s.secret)
	s.is.True(code != 0)
	recorded("update-subscription", id, "url_refused")
	code, _, _ = s.run("", "subscriptions", "test", id, "-database-url", s.database, "-secret-key", s.secret, "-mode", "development")
	s.is.Equal(code, 1) // nobody listens there
	s.is.Equal(recorded("test-subscription", id, "failed")["detail"], "connection_refused")

	event := s.ok("events", "send", "-tenant", "acme", "-type", "invoice.paid", "-payload", `{"secret":"of a payload"}`)
	recorded("send-events", event["id"].(string), "ok")
	delivery := data(s.ok("deliveries", "list", id))[0].(map[string]any)["id"].(string)
	code, _, _ = s.run("", "deliveries", "retry", id, delivery, "-database-url", s.database)
	s.is.Equal(code, 1)
	s.is.Equal(recorded("retry-delivery", id+"/"+delivery, "not_dead")["tenant"], "acme")
	s.ok("deliveries", "discard", id, delivery, "-reason", "not wanted")
	recorded("discard-delivery", id+"/"+delivery, "ok")
	s.ok("deliveries", "retry-range", id)
	recorded("retry-deliveries", id, "ok")
	s.ok("deliveries", "retry-range", id, "-dry-run") // changes nothing
	s.is.Equal(s.ok("subscriptions", "replay", id, "-since", "2026-01-01T00:00:00Z", "-dry-run")["matched"], 1.)
	replayed := s.ok("subscriptions", "replay", id, "-since", "2026-01-01T00:00:00Z")
	s.is.Equal([]any{replayed["deliveries"], replayed["done"]}, []any{1., true})
	s.is.Equal(recorded("replay-events", id, "ok")["detail"], "replay "+replayed["id"].(string)+": 1 deliveries, done")
	s.is.Equal(s.ok("subscriptions", "replay", id, "-since", "2026-01-01T00:00:00Z", "-id", replayed["id"].(string))["deliveries"], 1.)
	key := s.ok("keys", "create", "-name", "x", "-tenant", "acme")
	recorded("create-key", key["id"].(string), "ok")
	s.ok("keys", "revoke", key["id"].(string))
	recorded("revoke-key", key["id"].(string), "ok")
	s.ok("outbox", "retry", "-all-parked")
	recorded("retry-messages", "", "ok")
	s.ok("prune")
	recorded("prune", "", "ok")
	s.is.Equal(s.keyed("secrets", "reencrypt")["left"], 0.)
	recorded("reencrypt-secrets", "", "ok")
	s.ok("subscriptions", "delete", id)
	recorded("delete-subscription", id, "ok")
	code, _, _ = s.run("", "subscriptions", "pause", id, "-database-url", s.database)
	s.is.Equal(code, 1)
	recorded("pause-subscription", id, "not_found")

	all := fmt.Sprint(s.ok("audit", "list", "-limit", "100"))
	for _, hidden := range []string{secret, key["key"].(string), "of a payload"} {
		s.is.True(!strings.Contains(all, hidden))
	}
}

// A change that cannot be recorded is not made.
func TestNoChangeWithoutARecord(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	id := s.subscribe()
	conn, err := pgx.Connect(t.Context(), s.database)
	s.is.NoErr(err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), `ALTER TABLE postlane.audit RENAME TO audit_away`)
	s.is.NoErr(err)
	code, _, errOut := s.run("", "subscriptions", "pause", id, "-database-url", s.database)
	s.is.Equal(code, 1)
	s.is.True(strings.Contains(errOut, "not made"))
	s.is.Equal(s.ok("subscriptions", "show", id)["state"], "active")
}

// The key that encrypts secrets is changed step by step.
func TestReencryptFromTheCommandLine(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.subscribe()
	old, next := s.secret, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	s.secret = next + "," + old
	s.is.Equal(s.keyed("secrets", "reencrypt", "-dry-run"), map[string]any{"reencrypted": 0., "left": 1.})
	s.is.Equal(s.keyed("secrets", "reencrypt"), map[string]any{"reencrypted": 1., "left": 0.})
	s.secret = next
	s.is.Equal(s.keyed("secrets", "reencrypt"), map[string]any{"reencrypted": 0., "left": 0.})
	code, _, errOut := s.run("", "secrets", "reencrypt", "-database-url", s.database, "-secret-key", old)
	s.is.Equal(code, 1) // that is the wrong way
	s.is.True(strings.Contains(errOut, "do not remove the old key"))
}
