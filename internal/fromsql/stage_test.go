package fromsql_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postlane-go/postlane/outbox"
)

const sqlStage = `SELECT id, seq, duplicate FROM postlane.stage(topic => $1, payload => $2::bytea, queue => $3, id => $4, headers => $5, idempotency_key => $6,
	max_attempts => $7, run_at => $8, tenant => $9, traceparent => $10, enqueued_by => $11)`

// stageSQL is outbox.Stage by the SQL function.
func stageSQL(b *bundle, tx pgx.Tx, m outbox.Message) (outbox.Staged, error) {
	var x outbox.Staged
	payload := m.Payload
	if payload == nil {
		payload = []byte{}
	}
	var headers any
	if m.Headers != nil {
		text, err := json.Marshal(m.Headers)
		b.is.NoErr(err)
		headers = string(text)
	}
	err := tx.QueryRow(b.ctx, sqlStage, m.Topic, payload, optional(m.Queue), optional(m.ID), headers, optional(m.IdempotencyKey),
		optional(m.MaxAttempts), optional(m.RunAt), optional(m.Tenant), optional(m.Traceparent), optional(m.EnqueuedBy)).
		Scan(&x.ID, &x.Seq, &x.Duplicate)
	return x, err
}

var outboxTables = []string{"outbox_messages", "outbox_pending", "outbox_scheduled"}

func TestStageIsTheSameFromSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	long := func(n int) string { return strings.Repeat("a", n) }
	day := func(year int) time.Time { return time.Date(year, 3, 1, 12, 0, 0, 0, time.UTC) }
	for name, change := range map[string]func(*outbox.Message){
		"plain": func(*outbox.Message) {},
		"everything": func(m *outbox.Message) {
			m.ID, m.Queue, m.IdempotencyKey, m.Tenant, m.Traceparent, m.EnqueuedBy = "i", "q", "k", "t", "tp", "me"
		},
		"headers":      func(m *outbox.Message) { m.Headers = map[string]string{"b": "ü <&> \"", "a": ""} },
		"no headers":   func(m *outbox.Message) { m.Headers = map[string]string{} },
		"attempts":     func(m *outbox.Message) { m.MaxAttempts = 3 },
		"no payload":   func(m *outbox.Message) { m.Payload = nil },
		"any bytes":    func(m *outbox.Message) { m.Payload = []byte{0, 0xff, '\n'} },
		"later":        func(m *outbox.Message) { m.RunAt = day(2100) },
		"earlier":      func(m *outbox.Message) { m.RunAt = day(1970) },
		"the last day": func(m *outbox.Message) { m.RunAt = day(9999) },
		"longest": func(m *outbox.Message) {
			m.ID, m.Topic, m.Queue, m.IdempotencyKey, m.Tenant, m.EnqueuedBy = long(512), long(512), long(512), long(512), long(512), long(512)
		},
		"most headers": func(m *outbox.Message) { m.Headers = map[string]string{"a": long(outbox.MaxHeaders - 1)} },

		"no topic":               func(m *outbox.Message) { m.Topic = "" },
		"topic too long":         func(m *outbox.Message) { m.Topic = long(513) },
		"id too long":            func(m *outbox.Message) { m.ID = strings.Repeat("é", 257) },
		"queue too long":         func(m *outbox.Message) { m.Queue = long(513) },
		"key too long":           func(m *outbox.Message) { m.IdempotencyKey = long(513) },
		"tenant too long":        func(m *outbox.Message) { m.Tenant = long(513) },
		"trace too long":         func(m *outbox.Message) { m.Traceparent = long(513) },
		"enqueued-by too long":   func(m *outbox.Message) { m.EnqueuedBy = long(513) },
		"header without a name":  func(m *outbox.Message) { m.Headers = map[string]string{"": "x"} },
		"headers too large":      func(m *outbox.Message) { m.Headers = map[string]string{"a": long(outbox.MaxHeaders)} },
		"payload too large":      func(m *outbox.Message) { m.Payload = make([]byte, outbox.MaxPayload+1) },
		"attempts below zero":    func(m *outbox.Message) { m.MaxAttempts = -1 },
		"long ago":               func(m *outbox.Message) { m.RunAt = day(1969) },
		"in ten thousand years":  func(m *outbox.Message) { m.RunAt = day(12000) },
		"several problems":       func(m *outbox.Message) { m.Topic, m.MaxAttempts, m.Queue = "", -1, long(513) },
		"two problems of a name": func(m *outbox.Message) { m.Queue, m.Tenant = long(513), long(513) },
	} {
		m := outbox.Message{Topic: "mail", Payload: []byte(`{"to":"x"}`)}
		change(&m)
		var answers [2]outbox.Staged
		byGo, goErr := b.trial(outboxTables, func(tx pgx.Tx) error {
			list, err := outbox.Stage(b.ctx, tx, m)
			if err == nil {
				answers[0] = list[0]
			}
			return err
		})
		bySQL, sqlErr := b.trial(outboxTables, func(tx pgx.Tx) (err error) {
			answers[1], err = stageSQL(b, tx, m)
			return err
		})
		invalid := &outbox.InvalidError{}
		errors.As(goErr, &invalid)
		b.same(name, goErr, sqlErr, snake(invalid.Field), invalid.Problem)
		if byGo != bySQL {
			t.Errorf("%s:\nGo:  %s\nSQL: %s", name, byGo.rows, bySQL.rows)
		}
		if goErr == nil && (answers[0].Duplicate || answers[1].Duplicate || answers[1].Seq <= answers[0].Seq || m.ID != "" && answers[1].ID != m.ID) {
			t.Errorf("%s: answers %+v", name, answers)
		}
	}
}

func TestStagingTwiceStagesOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.Begin(b.ctx)
	b.is.NoErr(err)
	defer tx.Rollback(b.ctx)
	_, err = outbox.Stage(b.ctx, tx, outbox.Message{ID: "m1", Topic: "mail", IdempotencyKey: "k", Tenant: "acme"})
	b.is.NoErr(err)
	for m, duplicate := range map[*outbox.Message]bool{
		{ID: "m1", Topic: "other"}:                                         true,
		{ID: "m2", Topic: "mail", IdempotencyKey: "k", Tenant: "acme"}:     true,
		{ID: "m3", Topic: "mail", IdempotencyKey: "k"}:                     false,
		{ID: "m4", Topic: "mail", IdempotencyKey: "other", Tenant: "acme"}: false,
	} {
		staged, err := stageSQL(b, tx, *m)
		b.is.NoErr(err)
		b.is.Equal(staged.ID, m.ID)
		b.is.Equal(staged.Duplicate, duplicate)
		b.is.Equal(staged.Seq == 0, duplicate)
	}
}

func TestWhatOnlySQLCanSay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for arguments, want := range map[string]string{
		`headers => '[]'`:               "headers is not an object of texts",
		`headers => '"a"'`:              "headers is not an object of texts",
		`headers => '{"a": 1}'`:         "headers is not an object of texts",
		`headers => '{"a": null}'`:      "headers is not an object of texts",
		`run_at => 'infinity'`:          "run_at is infinity; give a time",
		`headers => 'null'`:             "",
		`run_at => NULL, queue => NULL`: "",
	} {
		_, err := b.trial(outboxTables, func(tx pgx.Tx) error {
			_, err := tx.Exec(b.ctx, "SELECT postlane.stage('mail', '{}', "+arguments+")")
			return err
		})
		var pg *pgconn.PgError
		switch {
		case want == "":
			b.is.NoErr(err)
		case !errors.As(err, &pg) || pg.Message != "postlane.stage: "+want:
			t.Errorf("%s: %v", arguments, err)
		}
	}
}
