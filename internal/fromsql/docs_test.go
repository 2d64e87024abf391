package fromsql_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/outbox"
)

// TestTheDocumentedStatementsRun runs docs/from-sql.md from top to bottom, and then what
// the role of an application may do.
func TestTheDocumentedStatementsRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "from-sql.md"))
	b.is.NoErr(err)
	app := "postlane_app_" + strings.ToLower(rand.Text()[:8]) // roles are the server's, not the database's
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllSubmatch(text, -1)
	b.is.Equal(len(blocks), 3)
	_, err = b.Exec(b.ctx, "CREATE ROLE "+app)
	b.is.NoErr(err)
	t.Cleanup(func() {
		_, err := b.Exec(context.Background(), fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", app))
		b.is.NoErr(err)
	})
	for _, block := range blocks {
		if _, err := b.Exec(b.ctx, strings.ReplaceAll(string(block[1]), "TO app;", "TO "+app+";")); err != nil {
			t.Fatalf("%v\n%s", err, block[1])
		}
	}
	_, err = b.Exec(b.ctx, "GRANT INSERT, UPDATE, SELECT ON orders TO "+app)
	b.is.NoErr(err)
	_, err = b.Exec(b.ctx, "INSERT INTO orders VALUES (1, 'acme', 'new')")
	b.is.NoErr(err)

	tx, err := b.Begin(b.ctx)
	b.is.NoErr(err)
	defer tx.Rollback(b.ctx)
	_, err = tx.Exec(b.ctx, "SET LOCAL ROLE "+app+"; UPDATE orders SET state = 'sent'; RESET ROLE")
	b.is.NoErr(err)
	// A search_path that leads elsewhere first, to an operator that would say otherwise.
	_, err = tx.Exec(b.ctx, `
		CREATE SCHEMA elsewhere;
		CREATE FUNCTION elsewhere.yes(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
		CREATE OPERATOR elsewhere.= (FUNCTION = elsewhere.yes, LEFTARG = text, RIGHTARG = text);
		CREATE FUNCTION elsewhere.convert_to(text, name) RETURNS bytea LANGUAGE sql AS $$SELECT 'wrong'::bytea$$;
		SET LOCAL search_path = elsewhere, pg_catalog, public`)
	b.is.NoErr(err)
	_, err = tx.Exec(b.ctx, "GRANT USAGE ON SCHEMA elsewhere TO "+app+"; SET LOCAL ROLE "+app)
	b.is.NoErr(err)
	_, err = tx.Exec(b.ctx, `SELECT postlane.enqueue('acme', 'invoice.paid', '{}', id => 'twice'), postlane.enqueue('acme', 'invoice.paid', '{}', id => 'twice')`)
	b.is.NoErr(err)
	_, err = tx.Exec(b.ctx, `SELECT postlane.stage('mail', '{}'), postlane.stage('mail', '{}', run_at => now() + interval '1 hour')`)
	b.is.NoErr(err)
	_, err = tx.Exec(b.ctx, "SET LOCAL search_path = public")
	b.is.NoErr(err)
	_, err = delivery.Enqueue(b.ctx, tx, delivery.Event{Tenant: "acme", Type: "invoice.paid", ID: "twice", Payload: []byte("{}")})
	b.is.NoErr(err)
	_, err = outbox.Stage(b.ctx, tx, outbox.Message{Topic: "mail"})
	b.is.NoErr(err)
	_, err = tx.Exec(b.ctx, "RESET ROLE")
	b.is.NoErr(err)
	rows, err := tx.Query(b.ctx, "SELECT format('%s %s %s %s', type, tenant, asset, convert_from(payload, 'UTF8'::name)) FROM postlane.events ORDER BY seq")
	b.is.NoErr(err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	b.is.NoErr(err)
	b.is.Equal(lines, []string{
		`invoice.paid acme in_1 {"id": "in_1", "total": 1200}`,
		`order.created acme order-1 {"id": 1, "state": "new", "tenant": "acme"}`,
		`order.changed acme order-1 {"id": 1, "state": "sent", "tenant": "acme"}`,
		`invoice.paid acme  {}`,
	})
	var deliveries int
	b.is.NoErr(tx.QueryRow(b.ctx, "SELECT count(*) FROM postlane.deliveries").Scan(&deliveries))
	b.is.Equal(deliveries, 3+1+1+3)
}
