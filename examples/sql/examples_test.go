package sqlexamples_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver named pgx
	"github.com/jmoiron/sqlx"
	_ "github.com/lib/pq" // the driver named postgres
	"github.com/matryer/is"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/deliverysql"
	sqlexamples "github.com/postlane-go/postlane/examples/sql"
	"github.com/postlane-go/postlane/examples/sql/ent"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// ways are all of them, as functions of a *sql.DB.
var ways = map[string]func(ctx context.Context, db *sql.DB, driver, id string) error{
	"database/sql": func(ctx context.Context, db *sql.DB, _, id string) error { return sqlexamples.PayWithSQL(ctx, db, id) },
	"sqlx": func(ctx context.Context, db *sql.DB, driver, id string) error {
		return sqlexamples.PayWithSQLX(ctx, sqlx.NewDb(db, driver), id)
	},
	"bun": func(ctx context.Context, db *sql.DB, _, id string) error {
		return sqlexamples.PayWithBun(ctx, bun.NewDB(db, pgdialect.New()), id)
	},
	"ent": func(ctx context.Context, db *sql.DB, _, id string) error {
		return sqlexamples.PayWithEnt(ctx, ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, db))), id)
	},
	"GORM":                          func(ctx context.Context, db *sql.DB, _, id string) error { return payWithGORM(ctx, db, id, false) },
	"GORM with prepared statements": func(ctx context.Context, db *sql.DB, _, id string) error { return payWithGORM(ctx, db, id, true) },
}

func payWithGORM(ctx context.Context, db *sql.DB, id string, prepare bool) error {
	g, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
	if err != nil {
		return err
	}
	return sqlexamples.PayWithGORM(ctx, g, id)
}

func TestEachWayChangesAllOrNothing(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"pgx", "postgres"} {
		for name, pay := range ways {
			t.Run(driver+" "+name, func(t *testing.T) {
				t.Parallel()
				is := is.New(t)
				ctx := t.Context()
				db, err := sql.Open(driver, pgtest.URL(t))
				is.NoErr(err)
				t.Cleanup(func() { db.Close() })
				_, err = db.ExecContext(ctx, `
					INSERT INTO postlane.subscriptions (tenant, url, event_types) VALUES ('acme', 'https://example.com/', '{invoice.*}');
					CREATE TABLE invoices (id text PRIMARY KEY, paid boolean NOT NULL);
					INSERT INTO invoices VALUES ('in_1', false)`)
				is.NoErr(err)
				state := func() (s string) {
					is.NoErr(db.QueryRowContext(ctx, `SELECT concat_ws(' ', (SELECT paid FROM invoices),
						(SELECT string_agg(type || '/' || asset || '/' || convert_from(payload, 'UTF8'), ' ') FROM postlane.events),
						(SELECT count(*) FROM postlane.deliveries),
						(SELECT string_agg(topic || '/' || queue, ' ') FROM postlane.outbox_messages))`).Scan(&s))
					return s
				}
				// A commit that fails takes all of it along.
				_, err = db.ExecContext(ctx, `
					CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'not today'; END$$;
					CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON invoices DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
				is.NoErr(err)
				err = pay(ctx, db, driver, "in_1")
				is.True(err != nil && strings.Contains(err.Error(), "not today"))
				is.Equal(state(), "f 0")

				_, err = db.ExecContext(ctx, "DROP TRIGGER refuse ON invoices")
				is.NoErr(err)
				is.NoErr(pay(ctx, db, driver, "in_1"))
				is.Equal(state(), `t invoice.paid/in_1/{"id":"in_1"} 1 mail.receipt/in_1`)
			})
		}
	}
}

// What lib/pq answers when another transaction holds an id is told apart from other errors.
func TestLibPQTellsWhoIsBusy(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	db, err := sql.Open("postgres", pgtest.URL(t))
	is.NoErr(err)
	t.Cleanup(func() { db.Close() })
	var txs [2]*sql.Tx
	for i := range txs {
		txs[i], err = db.BeginTx(ctx, nil)
		is.NoErr(err)
		defer txs[i].Rollback()
	}
	events := []delivery.Event{
		{ID: "evt_1", Tenant: "acme", Type: "invoice.paid", Payload: []byte{0, 0xff}}, {ID: "evt_2", Tenant: "acme", Type: "invoice.paid", Asset: `"`},
	}
	_, err = deliverysql.Enqueue(ctx, txs[0], events...)
	is.NoErr(err)
	_, err = deliverysql.Enqueue(ctx, txs[1], events...)
	is.True(errors.Is(err, delivery.ErrBusy))
	is.NoErr(txs[0].Commit())
	enqueued, err := deliverysql.Enqueue(ctx, txs[1], events...)
	is.NoErr(err)
	is.True(enqueued[0].Duplicate && enqueued[1].Duplicate)
	events[1].Payload = []byte("other")
	_, err = deliverysql.Enqueue(ctx, txs[1], events...)
	is.True(err != nil && strings.Contains(err.Error(), "another payload"))
	is.NoErr(txs[1].Commit())
}
