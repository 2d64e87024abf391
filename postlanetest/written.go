package postlanetest

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/deliverysql"
	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/sqltx"
	"github.com/postlane-go/postlane/outbox"
)

var queries = dbgen.New()

// SQL returns a transaction of database/sql, sqlx, bun, ent or GORM as Events, Messages and
// their Expect functions take it. It is good for nothing else.
func SQL(tx deliverysql.Tx) pgx.Tx { return sqltx.Pgx(tx) }

// Events returns the events that tx has enqueued so far, in their order. What was enqueued
// in a savepoint that was rolled back, and duplicates, are not among them. A failing
// database fails the test.
func Events(t testing.TB, tx pgx.Tx) []delivery.Event {
	t.Helper()
	rows, err := queries.EventListWritten(t.Context(), tx)
	if err != nil {
		t.Fatalf("postlanetest: read the transaction's events: %v", err)
	}
	events := make([]delivery.Event, len(rows))
	for i, r := range rows {
		events[i] = delivery.Event{
			ID: r.ID, Tenant: r.Tenant, Type: r.Type, Asset: value(r.Asset), ContentType: r.ContentType, Payload: r.Payload,
		}
	}
	return events
}

// Messages returns the messages that tx has staged so far, as Events does the events.
func Messages(t testing.TB, tx pgx.Tx) []outbox.Message {
	t.Helper()
	rows, err := queries.MessageListWritten(t.Context(), tx)
	if err != nil {
		t.Fatalf("postlanetest: read the transaction's messages: %v", err)
	}
	messages := make([]outbox.Message, len(rows))
	for i, r := range rows {
		m := outbox.Message{
			ID: r.ID, Topic: r.Topic, Queue: r.Queue, Payload: r.Payload, IdempotencyKey: value(r.IdempotencyKey), MaxAttempts: int(r.MaxAttempts),
			Tenant: r.Tenant, Traceparent: value(r.Traceparent), EnqueuedBy: value(r.EnqueuedBy), StagedAt: r.StagedAt,
		}
		if r.RunAt != nil {
			m.RunAt = *r.RunAt
		}
		if r.Headers != "" {
			if err := json.Unmarshal([]byte(r.Headers), &m.Headers); err != nil {
				t.Fatalf("postlanetest: headers of message %s: %v", m.ID, err)
			}
		}
		messages[i] = m
	}
	return messages
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
