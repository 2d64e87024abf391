package deliverysql_test

import (
	"database/sql"
	"errors"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver named pgx
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/deliverysql"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/outboxsql"
)

type bundle struct {
	*sql.DB

	is *is.I
	t  *testing.T
}

func setup(t *testing.T, mode string) *bundle {
	t.Helper()
	address, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	if mode != "" {
		query := address.Query()
		query.Set("default_query_exec_mode", mode)
		address.RawQuery = query.Encode()
	}
	db, err := sql.Open("pgx", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	b := &bundle{db, is.New(t), t}
	_, err = b.ExecContext(t.Context(), `INSERT INTO postlane.subscriptions (tenant, url) VALUES ('acme', 'https://example.com/')`)
	b.is.NoErr(err)
	return b
}

func (b *bundle) begin() *sql.Tx {
	b.t.Helper()
	tx, err := b.BeginTx(b.t.Context(), nil)
	b.is.NoErr(err)
	b.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (b *bundle) count(table string) (n int) {
	b.t.Helper()
	b.is.NoErr(b.QueryRowContext(b.t.Context(), "SELECT count(*) FROM postlane."+table).Scan(&n))
	return n
}

func TestEveryQueryModeEnqueuesAndStages(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "exec", "simple_protocol", "describe_exec"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := setup(t, mode)
			ctx := t.Context()
			one := delivery.Event{Tenant: "acme", Type: "invoice.paid", Payload: []byte{0, 0xff, '"'}}
			two := delivery.Event{ID: "evt_2", Tenant: "acme", Type: "invoice.paid", Asset: `in "1" \ {2},`, Payload: []byte(`{"a": "\\"}`)}
			tx := b.begin()
			b.is.NoErr(deliverysql.Serialize(ctx, tx, "in_1", `in "2"`))
			first, err := deliverysql.Enqueue(ctx, tx, one)
			b.is.NoErr(err)
			b.is.True(!first[0].Duplicate && first[0].ID != "" && first[0].Seq > 0)
			list, err := deliverysql.Enqueue(ctx, tx, one, two, two)
			b.is.NoErr(err)
			b.is.Equal([]bool{list[0].Duplicate, list[1].Duplicate, list[2].Duplicate}, []bool{false, false, true})
			b.is.True(first[0].Seq < list[0].Seq && list[0].Seq < list[1].Seq)
			staged, err := outboxsql.Stage(ctx, tx,
				outbox.Message{ID: "m1", Topic: "mail", Headers: map[string]string{"a": `"ü"`}, Payload: []byte{0, 1}},
				outbox.Message{Topic: "mail", IdempotencyKey: "k"}, outbox.Message{Topic: "mail", IdempotencyKey: "k"})
			b.is.NoErr(err)
			b.is.Equal([]bool{staged[0].Duplicate, staged[1].Duplicate, staged[2].Duplicate}, []bool{false, false, true})
			b.is.Equal(b.count("events"), 0) // not committed
			b.is.NoErr(tx.Commit())
			b.is.Equal([]int{b.count("events"), b.count("deliveries"), b.count("outbox_messages")}, []int{3, 3, 2})

			var asset string
			var payload []byte
			b.is.NoErr(b.QueryRowContext(ctx, "SELECT asset, payload FROM postlane.events WHERE id = 'evt_2'").Scan(&asset, &payload))
			b.is.Equal(asset, two.Asset)
			b.is.Equal(string(payload), string(two.Payload))

			// What was committed is known, and another event under its id refused, harmlessly.
			tx = b.begin()
			list, err = deliverysql.Enqueue(ctx, tx, two)
			b.is.NoErr(err)
			b.is.True(list[0].Duplicate)
			two.Payload = nil
			_, err = deliverysql.Enqueue(ctx, tx, one, two)
			b.is.True(errors.Is(err, delivery.ErrConflict))
			_, err = deliverysql.Enqueue(ctx, tx, delivery.Event{})
			b.is.True(errors.Is(err, delivery.ErrInvalid))
			b.is.NoErr(tx.Commit())
			b.is.Equal([]int{b.count("events"), b.count("deliveries")}, []int{3, 3})
		})
	}
}

func TestAnIDThatIsTakenByAnOpenTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	ctx := t.Context()
	event := delivery.Event{ID: "evt_1", Tenant: "acme", Type: "invoice.paid"}
	message := outbox.Message{ID: "m1", Topic: "mail"}
	holder, tx := b.begin(), b.begin()
	_, err := deliverysql.Enqueue(ctx, holder, event)
	b.is.NoErr(err)
	_, err = outboxsql.Stage(ctx, holder, message)
	b.is.NoErr(err)
	_, err = deliverysql.Enqueue(ctx, tx, event)
	b.is.True(errors.Is(err, delivery.ErrBusy))
	_, err = outboxsql.Stage(ctx, tx, message)
	b.is.True(errors.Is(err, outbox.ErrBusy))
	b.is.NoErr(holder.Rollback())
	list, err := deliverysql.Enqueue(ctx, tx, event) // the transaction goes on
	b.is.NoErr(err)
	b.is.True(!list[0].Duplicate)
	b.is.NoErr(tx.Commit())
	b.is.Equal(b.count("events"), 1)
}

func TestErrorsOfTheDatabaseAreTheDrivers(t *testing.T) {
	t.Parallel()
	b := setup(t, "")
	tx := b.begin()
	_, err := tx.ExecContext(t.Context(), "SELECT 1/0")
	b.is.True(err != nil)
	_, err = deliverysql.Enqueue(t.Context(), tx, delivery.Event{Tenant: "acme", Type: "a"})
	var pg *pgconn.PgError
	b.is.True(errors.As(err, &pg))
	b.is.Equal(pg.Code, "25P02") // the transaction has ended
	_, err = outboxsql.Stage(t.Context(), nil, outbox.Message{Topic: "mail"})
	b.is.True(errors.Is(err, outbox.ErrNoTx))
}
