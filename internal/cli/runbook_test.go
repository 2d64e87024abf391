package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/outbox"
)

// incident fills the shell's database with what the runbook's steps are about: an endpoint
// that is disabled, dead letters, one that holds its stream, and parked messages. It
// returns what stands for the names in the steps.
func (s *shell) incident(endpoint string) map[string]string {
	s.t.Helper()
	ctx := s.t.Context()
	made := s.keyed("subscriptions", "create", "-tenant", "acme", "-url", endpoint, "-on-dead", "hold", "-max-attempts", "1")
	key := s.ok("keys", "create", "-tenant", "acme", "-name", "leaked")
	conn, err := pgx.Connect(ctx, s.database)
	s.is.NoErr(err)
	defer conn.Close(ctx)
	var held int64
	s.is.NoErr(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		events := make([]delivery.Event, 3)
		for i := range events {
			events[i] = delivery.Event{Tenant: "acme", Type: "a.b", Asset: fmt.Sprint(i), Payload: []byte("{}")}
		}
		enqueued, err := delivery.Enqueue(ctx, tx, events...)
		if err != nil {
			return err
		}
		held = enqueued[2].Seq
		_, err = outbox.Stage(ctx, tx, outbox.Message{ID: "waits", Queue: "a", Topic: "t"}, outbox.Message{ID: "parked", Queue: "b", Topic: "t"})
		return err
	}))
	_, err = conn.Exec(ctx, `
		WITH dead AS (DELETE FROM postlane.deliveries WHERE seq < $1 RETURNING *)
		INSERT INTO postlane.settled (subscription_id, seq, created_at, settled_at, attempts, state, tenant, event_id, event_type, asset, reason)
		SELECT subscription_id, seq, created_at, now(), 1, 'dead', tenant, event_id, event_type, asset, 'attempts used up: http_status' FROM dead`, held)
	s.is.NoErr(err)
	for _, sql := range []string{
		"UPDATE postlane.deliveries SET held_at = now(), ready = NULL, attempts = 1, reason = 'attempts used up: http_status'",
		"UPDATE postlane.subscriptions SET state = 'disabled', state_reason = 'it failed', revision = revision + 1",
		"WITH m AS (DELETE FROM postlane.outbox_pending WHERE id = 'parked' RETURNING *) INSERT INTO postlane.outbox_parked (seq, parked_at, attempts, size, queue, id, error) SELECT seq, now(), 20, size, queue, id, 'no' FROM m",
		"INSERT INTO postlane.outbox_holds (seq, since, until, queue) SELECT seq, now(), now() + interval '1 hour', queue FROM postlane.outbox_pending",
		"UPDATE postlane.outbox_pending SET ready = false, attempts = 1, last_error = 'not now'",
	} {
		_, err := conn.Exec(ctx, sql)
		s.is.NoErr(err)
	}
	return map[string]string{"sub_1": made["id"].(string), "dlv_1": delivery.ID(held).String(), "msg_1": "waits", "key_1": key["id"].(string)}
}

var (
	blocks = regexp.MustCompile("(?s)(changes\\s+something:\n\n)?```(sql|sh)\n(.*?)```")
	word   = regexp.MustCompile(`"[^"]*"|\S+`)
)

// TestEveryStepOfTheRunbook runs docs/operations.md from top to bottom, each block of it on
// a database with an incident: every statement as it stands, in a transaction that may
// only read unless the text before it says otherwise, and every command with the incident's names.
func TestEveryStepOfTheRunbook(t *testing.T) {
	t.Parallel()
	endpoint := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer endpoint.Close()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, block := range blocks.FindAllStringSubmatch(string(text), -1) {
		s := newShell(t)
		names := s.incident(endpoint.URL)
		if block[2] == "sql" {
			mode := pgx.ReadOnly
			if block[1] != "" {
				mode = pgx.ReadWrite
			}
			s.statement(block[3], mode)
			ran++
			continue
		}
		for line := range strings.Lines(block[3]) {
			args, ours := strings.CutPrefix(strings.TrimSpace(line), "postlane ")
			if !ours {
				s.is.True(strings.HasPrefix(line, "curl -sS http://127.0.0.1:8080/"))
				continue
			}
			s.step(args, names)
			ran++
		}
	}
	if ran < 40 {
		t.Errorf("the runbook has %d steps, only", ran)
	}
}

// reads runs a statement of the runbook.
func (s *shell) statement(sql string, mode pgx.TxAccessMode) {
	s.t.Helper()
	ctx := s.t.Context()
	conn, err := pgx.Connect(ctx, s.database)
	s.is.NoErr(err)
	defer conn.Close(ctx)
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: mode}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql)
		return err
	})
	if err != nil {
		s.t.Errorf("%v\n%s", err, sql)
	}
}

// step runs a command of the runbook.
func (s *shell) step(line string, names map[string]string) {
	s.t.Helper()
	args := word.FindAllString(line, -1)
	for i, a := range args {
		args[i] = strings.Trim(a, `"`)
		if name, given := names[a]; given {
			args[i] = name
		}
	}
	if args[0] != "-version" {
		args = append(args, "-database-url", s.database)
	}
	if args[0] == "subscriptions" && slices.Contains([]string{"test", "rotate-secret", "update"}, args[1]) {
		args = append(args, "-secret-key", s.secret, "-mode", "development")
	}
	if code, out, errOut := s.run("", args...); code != 0 {
		s.t.Errorf("postlane %s: exit %d\n%s%s", line, code, out, errOut)
	}
}
