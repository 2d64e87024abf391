package roles_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// allowed says what each role may do with each table: s(elect), i(nsert), u(pdate), d(elete).
// In brackets are the only columns. Everything that is not here is refused.
var allowed = map[string]string{
	"app": `
		subscription_patterns s, event_types s, events si, deliveries i,
		outbox_messages si, outbox_pending i, outbox_scheduled i`,
	"dispatcher": `
		subscriptions su(revision state state_reason state_since failure_count failing updated_at), subscription_secrets s, events si,
		deliveries siud, leases siud, paces su, breakers siud, settled si, attempts i`,
	"relay": `
		outbox_messages s, outbox_parked si, outbox_pending siud, outbox_leases siud, outbox_holds siud,
		outbox_scheduled sdu(size), outbox_published i`,
	"operator": `
		subscriptions siu, subscription_patterns sid, subscription_secrets siud, events si, deliveries siud, leases s, paces siud, breakers sd, settled siud, attempts s,
		revivals si, replays siu, replayed si, event_types siud, api_keys siu, audit siu(tenant target detail status outcome), console_sessions sid,
		statistics_minutes siud, statistics_spans siud, statistics_kinds siud, statistics_progress su,
		outbox_messages s, outbox_pending si, outbox_scheduled s, outbox_leases s, outbox_holds su, outbox_parked sd, outbox_published s`,
	"retention": `
		subscriptions s, deliveries s, settled sd, attempts sd, revivals sd, replays sd, replayed sd, audit sd, console_sessions sd,
		subscription_secrets ds(subscription_id number expires_at)u(expires_at), events ds(created_at tenant id seq)u(traceparent),
		outbox_messages ds(id), outbox_published sdu(claimant)`,
}

var verbs = map[byte]string{'s': "SELECT", 'i': "INSERT", 'u': "UPDATE", 'd': "DELETE"}

// rights is what allowed says of one table: which columns each verb is for, nil for all.
func rights(t *testing.T, text string) map[string]map[string][]string {
	t.Helper()
	of := map[string]map[string][]string{}
	for entry := range strings.SplitSeq(text, ",") {
		table, letters, _ := strings.Cut(strings.TrimSpace(entry), " ")
		of[table] = map[string][]string{}
		last := ""
		for letters != "" {
			if columns, rest, found := strings.Cut(strings.TrimPrefix(letters, "("), ")"); letters[0] == '(' && found {
				of[table][last], letters = strings.Fields(columns), rest
				continue
			}
			if last = verbs[letters[0]]; last == "" {
				t.Fatalf("what is %q?", letters)
			}
			of[table][last], letters = nil, letters[1:]
		}
	}
	return of
}

// TestEverythingElseIsRefused tries every verb on every column of every table as each role.
func TestEverythingElseIsRefused(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.grant() // again changes nothing
	rows, err := d.Query(d.ctx, `SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'postlane'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped GROUP BY 1`)
	d.is.NoErr(err)
	type table struct {
		Name    string
		Columns []string
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
	d.is.NoErr(err)
	d.is.True(len(tables) > 20)
	for role, text := range allowed {
		pool, granted := d.as(role), rights(t, text)
		may := func(sql string) bool {
			t.Helper()
			tx, err := pool.Begin(d.ctx)
			d.is.NoErr(err)
			defer tx.Rollback(d.ctx)
			_, err = tx.Exec(d.ctx, sql)
			if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && refused.Code == "42501" {
				return false
			}
			return true // any other complaint comes after the question of rights
		}
		for _, table := range tables {
			for _, verb := range verbs {
				columns, granted := granted[table.Name][verb]
				for _, column := range table.Columns {
					var sql string
					switch verb {
					case "SELECT":
						sql = fmt.Sprintf(`SELECT "%s" FROM postlane.%s LIMIT 0`, column, table.Name)
					case "INSERT":
						sql = fmt.Sprintf(`INSERT INTO postlane.%s ("%s") OVERRIDING SYSTEM VALUE VALUES (DEFAULT)`, table.Name, column)
					case "UPDATE":
						sql = fmt.Sprintf(`UPDATE postlane.%s SET "%s" = DEFAULT WHERE false`, table.Name, column)
					case "DELETE":
						sql = fmt.Sprintf("DELETE FROM postlane.%s WHERE false", table.Name)
					}
					want := granted && (columns == nil || slices.Contains(columns, column))
					if got := may(sql); got != want {
						t.Errorf("%s: %s: %v and not %v", role, sql, got, want)
					}
				}
			}
			for _, sql := range []string{"TRUNCATE postlane.%s", "DROP TABLE postlane.%s", "ALTER TABLE postlane.%s ADD COLUMN x integer", "CREATE TRIGGER x BEFORE INSERT ON postlane.%s EXECUTE FUNCTION postlane.subscription_patterns_sync()"} {
				if sql = fmt.Sprintf(sql, table.Name); may(sql) {
					t.Errorf("%s: %s is allowed", role, sql)
				}
			}
		}
		for _, sql := range []string{
			"CREATE TABLE postlane.x ()", "CREATE FUNCTION postlane.x() RETURNS integer LANGUAGE sql RETURN 1", "DROP SCHEMA postlane CASCADE",
			"ALTER FUNCTION postlane.wake(text) SECURITY DEFINER", "SELECT setval('postlane.delivery_seq', 1)", "SELECT setval('postlane.fence_seq', 1)",
			"DELETE FROM public.schema_migrations", "INSERT INTO public.schema_migrations VALUES ('9')", "CREATE ROLE x",
		} {
			if may(sql) {
				t.Errorf("%s: %s is allowed", role, sql)
			}
		}
		for sql, roles := range map[string][]string{
			"SELECT postlane.enqueue('acme', 'a', '{}')": {"app"}, "SELECT postlane.stage('a', '{}')": {"app"},
			"SELECT postlane.wake('delivery')": {"app", "dispatcher"}, "SELECT postlane.tell('acme', 1, 'postlane.stream.held', '{}')": {"dispatcher"},
		} {
			if may(sql) != slices.Contains(roles, role) {
				t.Errorf("%s: %s: %v", role, sql, !slices.Contains(roles, role))
			}
		}
	}
	// Who has no role of these sees nothing.
	stranger := d.as(nobody)
	for _, sql := range []string{"SELECT FROM postlane.events", "SELECT postlane.enqueue('acme', 'a', '{}')"} {
		_, err := stranger.Exec(d.ctx, sql)
		d.is.True(err != nil && strings.Contains(err.Error(), "permission denied for schema postlane"))
	}
}
