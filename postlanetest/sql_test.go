package postlanetest_test

import (
	"database/sql"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver named pgx
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/deliverysql"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/outboxsql"
	"github.com/postlane-go/postlane/postlanetest"
)

func TestTransactionsOfDatabaseSQLAreLookedIntoToo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	db, err := sql.Open("pgx", pgtest.URL(t))
	is.NoErr(err)
	t.Cleanup(func() { db.Close() })
	tx, err := db.BeginTx(ctx, nil)
	is.NoErr(err)
	defer tx.Rollback()
	event := delivery.Event{ID: "evt_1", Tenant: "acme", Type: "invoice.paid", Payload: []byte(`{"id":1}`)}
	message := outbox.Message{
		ID: "m1", Topic: "mail", Headers: map[string]string{"a": "b"}, IdempotencyKey: "k", Payload: []byte("x"), RunAt: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	_, err = deliverysql.Enqueue(ctx, tx, event)
	is.NoErr(err)
	_, err = outboxsql.Stage(ctx, tx, message, outbox.Message{Topic: "plain"})
	is.NoErr(err)
	postlanetest.ExpectEvents(t, postlanetest.SQL(tx), event)
	postlanetest.ExpectMessages(t, postlanetest.SQL(tx), message, outbox.Message{Topic: "plain", Queue: outbox.DefaultQueue})
}
