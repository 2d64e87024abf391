package fromsql_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postlane-go/postlane/delivery"
)

const sqlEnqueue = `SELECT id, seq, duplicate FROM postlane.enqueue(tenant => $1, type => $2, payload => $3::bytea, asset => $4, id => $5, content_type => $6, traceparent => $7, deliver_after => $8)`

// enqueueSQL is delivery.Enqueue by the SQL function.
func enqueueSQL(b *bundle, tx pgx.Tx, e delivery.Event) (delivery.Enqueued, error) {
	var x delivery.Enqueued
	payload := e.Payload
	if payload == nil {
		payload = []byte{}
	}
	err := tx.QueryRow(b.ctx, sqlEnqueue, e.Tenant, e.Type, payload, optional(e.Asset), optional(e.ID), optional(e.ContentType), optional(e.Traceparent), optional(e.DeliverAfter)).
		Scan(&x.ID, &x.Seq, &x.Duplicate)
	return x, err
}

func TestEnqueueIsTheSameFromSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	long := func(n int) string { return strings.Repeat("a", n) }
	traceparent := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for name, change := range map[string]func(*delivery.Event){
		"plain":                    func(*delivery.Event) {},
		"asset":                    func(e *delivery.Event) { e.Asset = "Rechnung № 1 \n" },
		"id":                       func(e *delivery.Event) { e.ID = "evt_1-A" },
		"content type":             func(e *delivery.Event) { e.ContentType = "text/plain; charset=utf-8" },
		"no payload":               func(e *delivery.Event) { e.Payload = nil },
		"any bytes":                func(e *delivery.Event) { e.Payload = []byte{0, 0xff, '\n', 0} },
		"later":                    func(e *delivery.Event) { e.DeliverAfter = time.Now().Add(time.Hour).Round(time.Microsecond) },
		"in the past":              func(e *delivery.Event) { e.DeliverAfter = time.Unix(0, 0) },
		"trace":                    func(e *delivery.Event) { e.Traceparent = traceparent },
		"nobody subscribed":        func(e *delivery.Event) { e.Tenant = "other" },
		"one subscribed":           func(e *delivery.Event) { e.Type = "b" },
		"deep type":                func(e *delivery.Event) { e.Type = "a.b.c.d.e" },
		"type with all characters": func(e *delivery.Event) { e.Type = "A-Z_09.x" },
		"longest":                  func(e *delivery.Event) { e.ID, e.Tenant, e.Asset, e.Type = long(128), long(128), long(512), long(128) },
		"most parts":               func(e *delivery.Event) { e.Type = strings.Repeat("a.", 15) + "a" },

		"id too long":              func(e *delivery.Event) { e.ID = long(129) },
		"id with a full stop":      func(e *delivery.Event) { e.ID = "a.b" },
		"id with é":                func(e *delivery.Event) { e.ID = "é" },
		"id with a line break":     func(e *delivery.Event) { e.ID = "a\n" },
		"no tenant":                func(e *delivery.Event) { e.Tenant = "" },
		"tenant too long":          func(e *delivery.Event) { e.Tenant = strings.Repeat("é", 65) },
		"asset too long":           func(e *delivery.Event) { e.Asset = strings.Repeat("é", 257) },
		"payload too large":        func(e *delivery.Event) { e.Payload = make([]byte, delivery.MaxPayload+1) },
		"content type with é":      func(e *delivery.Event) { e.ContentType = "text/é" },
		"content type of two":      func(e *delivery.Event) { e.ContentType = "a\r\nb: c" },
		"no type":                  func(e *delivery.Event) { e.Type = "" },
		"type too long":            func(e *delivery.Event) { e.Type = long(129) },
		"type with an empty part":  func(e *delivery.Event) { e.Type = "a..b" },
		"type ends with a stop":    func(e *delivery.Event) { e.Type = "a." },
		"type is a pattern":        func(e *delivery.Event) { e.Type = "a.*" },
		"type with a line break":   func(e *delivery.Event) { e.Type = "a\n" },
		"type with a space":        func(e *delivery.Event) { e.Type = "a b" },
		"a reserved type":          func(e *delivery.Event) { e.Type = "postlane.delivery.dead" },
		"too many parts":           func(e *delivery.Event) { e.Type = strings.Repeat("a.", 16) + "a" },
		"trace is a word":          func(e *delivery.Event) { e.Traceparent = "sampled" },
		"trace in capital letters": func(e *delivery.Event) { e.Traceparent = strings.ToUpper(traceparent) },
		"trace of zeros":           func(e *delivery.Event) { e.Traceparent = "00-" + strings.Repeat("0", 32) + traceparent[35:] },
		"span of zeros":            func(e *delivery.Event) { e.Traceparent = traceparent[:36] + strings.Repeat("0", 16) + "-01" },
		"trace of a version":       func(e *delivery.Event) { e.Traceparent = "ff" + traceparent[2:] },
		"trace too long":           func(e *delivery.Event) { e.Traceparent = traceparent + "-x" },
		"too far ahead":            func(e *delivery.Event) { e.DeliverAfter = time.Now().Add(366 * 24 * time.Hour) },
		"before 1970":              func(e *delivery.Event) { e.DeliverAfter = time.Unix(0, -1) },
		"several problems":         func(e *delivery.Event) { e.Type, e.Tenant, e.Asset = "", "", long(513) },
	} {
		e := delivery.Event{Tenant: "acme", Type: "invoice.paid", Payload: []byte(`{"total":1200}`)}
		change(&e)
		tables := []string{"events", "deliveries"}
		var answers [2]delivery.Enqueued
		byGo, goErr := b.trial(tables, func(tx pgx.Tx) error {
			list, err := delivery.Enqueue(b.ctx, tx, e)
			if err == nil {
				answers[0] = list[0]
			}
			return err
		})
		bySQL, sqlErr := b.trial(tables, func(tx pgx.Tx) (err error) {
			answers[1], err = enqueueSQL(b, tx, e)
			return err
		})
		invalid := &delivery.InvalidError{}
		errors.As(goErr, &invalid)
		b.same(name, goErr, sqlErr, snake(invalid.Field), invalid.Problem)
		if byGo != bySQL {
			t.Errorf("%s:\nGo:  %s\nSQL: %s", name, byGo.rows, bySQL.rows)
		}
		if goErr == nil && (answers[0].Duplicate || answers[1].Duplicate || answers[1].Seq <= answers[0].Seq || e.ID != "" && answers[1].ID != e.ID) {
			t.Errorf("%s: answers %+v", name, answers)
		}
	}
}

func TestAnIDStandsForOneEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := delivery.Event{ID: "evt_1", Tenant: "acme", Type: "invoice.paid", Asset: "in_1", Payload: []byte("{}")}
	for _, way := range []string{"SQL after Go", "SQL after SQL"} {
		tx, err := b.Begin(b.ctx)
		b.is.NoErr(err)
		var first delivery.Enqueued
		if way == "SQL after Go" {
			list, err := delivery.Enqueue(b.ctx, tx, e)
			b.is.NoErr(err)
			first = list[0]
		} else {
			first, err = enqueueSQL(b, tx, e)
			b.is.NoErr(err)
		}
		again, err := enqueueSQL(b, tx, e)
		b.is.NoErr(err)
		b.is.Equal(again, delivery.Enqueued{ID: "evt_1", Seq: first.Seq, Duplicate: true})
		list, err := delivery.Enqueue(b.ctx, tx, e) // and Go after either
		b.is.NoErr(err)
		b.is.Equal(list[0], again)
		var events, deliveries int
		b.is.NoErr(tx.QueryRow(b.ctx, "SELECT (SELECT count(*) FROM postlane.events), (SELECT count(*) FROM postlane.deliveries)").Scan(&events, &deliveries))
		b.is.Equal([]int{events, deliveries}, []int{1, 3})

		for _, change := range []func(*delivery.Event){
			func(e *delivery.Event) { e.Type = "invoice.sent" },
			func(e *delivery.Event) { e.Asset = "" },
			func(e *delivery.Event) { e.Payload = []byte("{} "); e.ContentType = "text/plain" },
			func(e *delivery.Event) { e.Payload = nil; e.Type = "b"; e.Asset = "x"; e.ContentType = "a/b" },
		} {
			other := e
			change(&other)
			_, goErr := delivery.Enqueue(b.ctx, tx, other)
			b.is.True(errors.Is(goErr, delivery.ErrConflict))
			savepoint, err := tx.Begin(b.ctx)
			b.is.NoErr(err)
			_, sqlErr := enqueueSQL(b, savepoint, other)
			b.is.NoErr(savepoint.Rollback(b.ctx))
			var pg *pgconn.PgError
			b.is.True(errors.As(sqlErr, &pg))
			b.is.Equal(pg.Code, "23505")
			b.is.Equal(pg.Message, strings.Replace(goErr.Error(), "delivery:", "postlane.enqueue:", 1))
		}
		b.is.NoErr(tx.Rollback(b.ctx))
	}
}

func TestAnIDThatIsBeingEnqueuedIsWaitedForBriefly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := delivery.Event{ID: "evt_1", Tenant: "acme", Type: "invoice.paid"}
	holder, err := b.Begin(b.ctx)
	b.is.NoErr(err)
	defer holder.Rollback(b.ctx)
	_, err = delivery.Enqueue(b.ctx, holder, e)
	b.is.NoErr(err)

	tx, err := b.Begin(b.ctx)
	b.is.NoErr(err)
	defer tx.Rollback(b.ctx)
	savepoint, err := tx.Begin(b.ctx)
	b.is.NoErr(err)
	_, err = enqueueSQL(b, savepoint, e)
	var pg *pgconn.PgError
	b.is.True(errors.As(err, &pg))
	b.is.Equal(pg.Code, "55P03")
	b.is.NoErr(savepoint.Rollback(b.ctx))
	var timeout string
	b.is.NoErr(tx.QueryRow(b.ctx, "SHOW lock_timeout").Scan(&timeout))
	b.is.Equal(timeout, "0") // the caller's own is as it was
	b.is.NoErr(holder.Rollback(b.ctx))
	_, err = enqueueSQL(b, tx, e)
	b.is.NoErr(err)
}

func TestPayloadsOfEveryKind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.Begin(b.ctx)
	b.is.NoErr(err)
	defer tx.Rollback(b.ctx)
	for expression, want := range map[string]string{
		`'{"a":  "ü"}'`:                   `{"a":  "ü"}`, // a literal is text
		`'{"a":  1}'::text`:               `{"a":  1}`,
		`'{"a":  1}'::json`:               `{"a":  1}`,
		`'{"b":2, "a":  1}'::jsonb`:       `{"a": 1, "b": 2}`,
		`'\x00ff'::bytea`:                 "\x00\xff",
		`''`:                              "",
		`json_build_object('total', 1.0)`: `{"total" : 1.0}`,
	} {
		var payload []byte
		err := tx.QueryRow(b.ctx, `WITH x AS MATERIALIZED (SELECT (postlane.enqueue('acme', 'invoice.paid', `+expression+`)).id) SELECT id FROM x`).Scan(nil)
		b.is.NoErr(err)
		b.is.NoErr(tx.QueryRow(b.ctx, "SELECT payload FROM postlane.events ORDER BY seq DESC LIMIT 1").Scan(&payload))
		b.is.Equal(string(payload), want)
		b.is.NoErr(tx.QueryRow(b.ctx, `SELECT (postlane.stage('mail', `+expression+`)).id`).Scan(nil))
		b.is.NoErr(tx.QueryRow(b.ctx, "SELECT payload FROM postlane.outbox_messages ORDER BY seq DESC LIMIT 1").Scan(&payload))
		b.is.Equal(string(payload), want)
	}
	for _, call := range []string{"enqueue('acme', 'invoice.paid', NULL)", "stage('mail', NULL::jsonb)"} {
		savepoint, err := tx.Begin(b.ctx)
		b.is.NoErr(err)
		_, err = savepoint.Exec(b.ctx, "SELECT postlane."+call)
		b.is.True(err != nil && strings.Contains(err.Error(), "payload is NULL"))
		b.is.NoErr(savepoint.Rollback(b.ctx))
	}
}
