package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
)

// deadLetters leaves n dead letters of a new subscription in the log, of which every
// fifth holds its stream, each with an attempt; and returns its path.
func (b *bundle) deadLetters(n int) string {
	b.t.Helper()
	path := b.subscribe(map[string]any{"on_dead": "hold"})
	id := int64(b.id(path))
	b.exec(`INSERT INTO postlane.events (seq, tenant, id, type, asset, content_type, payload)
		SELECT n, 'acme', 'e' || n, CASE WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END, 'asset-' || n, 'application/json', '{}' FROM generate_series(1, $1) n`, n)
	b.exec(`INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, asset, created_at, settled_at, attempts, state, reason)
		SELECT $1, seq, tenant, id, type, asset, created_at, now(), 1, 'dead', 'used up' FROM postlane.events WHERE seq % 5 <> 0`, id)
	b.exec(`INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, attempts, held_at, reason)
		SELECT $1, seq, tenant, id, type, asset, 1, now(), 'used up' FROM postlane.events WHERE seq % 5 = 0`, id)
	b.exec(`INSERT INTO postlane.attempts (subscription_id, seq, fence, started_at, number, tenant, outcome, claimant)
		SELECT $1, seq, nextval('postlane.fence_seq'), now(), 1, tenant, 'timeout', 'test' FROM postlane.events`, id)
	b.exec(`SELECT setval('postlane.delivery_seq', $1)`, n)
	return path
}

// A range of dead letters: counted first, retried in the order of their streams, and
// what was not reached is where the next request goes on.
func TestRetryARange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.deadLetters(1000)
	at := path + "/deliveries/retry"
	before := b.state()
	dry := b.want(200, b.acme, "POST", at, map[string]any{"dry_run": true}).object(b)
	b.is.Equal(dry, map[string]any{"dry_run": true, "matched": 1000.0, "retried": 0.0, "skipped": 0.0, "next_cursor": nil})
	b.is.Equal(b.want(200, b.acme, "POST", at, map[string]any{"dry_run": true, "event_type": "even"}).object(b)["matched"], 500.0)
	b.is.Equal(b.want(200, b.acme, "POST", at, map[string]any{"dry_run": true, "asset": "asset-5"}).object(b)["matched"], 1.0)
	b.is.Equal(b.want(200, b.acme, "POST", at, map[string]any{"dry_run": true, "asset": nil}).object(b)["matched"], 0.0)
	b.is.Equal(b.want(200, b.acme, "POST", at, map[string]any{"dry_run": true, "until": "2020-01-01T00:00:00Z"}).object(b)["matched"], 0.0)
	b.is.Equal(b.state(), before)

	// 300 of the odd ones, then the other 200.
	first := b.want(200, b.acme, "POST", at, map[string]any{"event_type": "odd", "max": 300}).object(b)
	b.is.Equal([]any{first["matched"], first["retried"], first["skipped"]}, []any{500.0, 300.0, 0.0})
	b.is.Equal(one[int64](b, `SELECT max(seq) FROM postlane.deliveries WHERE held_at IS NULL`), int64(599)) // from the front
	cursor := first["next_cursor"].(string)
	b.refused("bad_cursor", b.do(b.acme, "POST", at, map[string]any{"event_type": "even", "cursor": cursor}))
	b.refused("bad_cursor", b.do(b.acme, "POST", at, map[string]any{"event_type": "odd", "cursor": "x" + cursor}))
	rest := b.want(200, b.acme, "POST", at, map[string]any{"event_type": "odd", "cursor": cursor}).object(b)
	b.is.Equal(rest, map[string]any{"dry_run": false, "matched": 200.0, "retried": 200.0, "skipped": 0.0, "next_cursor": nil})
	b.is.Equal(b.want(200, b.acme, "POST", at, map[string]any{"event_type": "odd"}).object(b)["matched"], 0.0)

	b.is.Equal(len(b.claim(1000)), 500) // and they may be sent
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.revivals WHERE revived_by LIKE 'a test (key_%' AND after_fence > 0`), int64(500))
	shown := b.want(200, b.acme, "GET", path+"/deliveries/dlv_5", nil).object(b)
	b.is.Equal(len(shown["retries"].([]any)), 1)

	// One whose event is no longer kept is skipped, and said to be.
	b.exec(`DELETE FROM postlane.events WHERE seq = 2`)
	last := b.want(200, b.acme, "POST", at, map[string]any{}).object(b)
	b.is.Equal([]any{last["matched"], last["retried"], last["skipped"], last["next_cursor"]}, []any{500.0, 499.0, 1.0, nil})
	detail := b.data(b.want(200, b.acme, "GET", "/v1/audit?limit=1", nil))[0].(map[string]any)["detail"]
	b.is.Equal(detail, "500 match, 499 retried, 1 skipped")
}

// A request that is broken off has retried whole batches, and the record tells how many.
func TestRetryIsInterrupted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.deadLetters(900)
	// The third batch waits for a row that somebody else holds.
	tx, err := b.pool.Begin(b.ctx)
	b.is.NoErr(err)
	_, err = tx.Exec(b.ctx, `SELECT 1 FROM postlane.settled WHERE seq = 402 FOR UPDATE`)
	b.is.NoErr(err)
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan answer, 1)
	go func() {
		r := httptest.NewRequestWithContext(ctx, "POST", path+"/deliveries/retry", strings.NewReader("{}"))
		r.Header.Set("Authorization", "Bearer "+b.acme)
		w := httptest.NewRecorder()
		b.api.ServeHTTP(w, r)
		done <- answer{w.Code, w.Header(), w.Body.Bytes()}
	}()
	for one[int64](b, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 0 {
	}
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.revivals`), int64(400))
	cancel()
	got := <-done
	b.is.NoErr(tx.Rollback(b.ctx))
	// Nobody reads this answer; the record is what tells.
	b.is.Equal(got.object(b)["retried"], 400.0)
	entry := b.data(b.want(200, b.acme, "GET", "/v1/audit?limit=1", nil))[0].(map[string]any)
	b.is.Equal(entry["detail"], "900 match, 400 retried, 0 skipped")
	rest := b.want(200, b.acme, "POST", path+"/deliveries/retry", map[string]any{}).object(b)
	b.is.Equal([]any{rest["matched"], rest["retried"]}, []any{500.0, 500.0})
}

// A filter that would read for too long is a 422 that says what to do.
func TestTooBroadIsSaid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.subscribe(nil)
	tx, err := b.pool.Begin(b.ctx)
	b.is.NoErr(err)
	defer tx.Rollback(b.ctx)
	b.want(200, b.acme, "GET", path+"/deliveries", nil)                             // the other connection knows the statement
	_, err = tx.Exec(b.ctx, `LOCK TABLE postlane.settled IN ACCESS EXCLUSIVE MODE`) // a read that takes for ever
	b.is.NoErr(err)
	got := b.do(b.acme, "GET", path+"/deliveries", nil)
	b.is.Equal(got.status, http.StatusUnprocessableEntity)
	b.is.True(strings.Contains(b.refused("too_broad", got), "Narrow"))
}

// What the description says about lists and their order holds for the keys too.
func TestKeysArePaged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	is := is.New(t)
	for i := range 7 {
		b.want(201, operatorKey, "POST", "/v1/keys", map[string]any{"name": fmt.Sprint(i), "tenant": "paged", "scope": "read"})
	}
	ids, pages := b.pages(operatorKey, "/v1/keys?tenant=paged&limit=3")
	is.Equal([]int{len(ids), pages}, []int{7, 3})
	for _, body := range []map[string]any{
		{"name": "x", "scope": "read"}, {"name": "x", "scope": "read", "tenant": "a", "operator": true}, {"name": "", "scope": "read", "tenant": "a"},
		{"name": "x", "scope": "all", "tenant": "a"},
	} {
		b.refused("invalid", b.do(operatorKey, "POST", "/v1/keys", body))
	}
	made := b.want(201, operatorKey, "POST", "/v1/keys", map[string]any{"name": "second operator", "operator": true, "scope": "read"}).object(b)
	b.want(200, made["key"].(string), "GET", "/v1/keys", nil)
	b.refused("read_only_key", b.do(made["key"].(string), "POST", "/v1/keys", map[string]any{"name": "x", "scope": "read", "tenant": "a"}))
	b.refused("not_found", b.do(operatorKey, "POST", "/v1/keys/key_1/revoke", nil))
}

// A range may be those that died of one reason, as the console groups them.
func TestRetryByReason(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(map[string]any{"on_dead": "hold"})
	b.enqueue("a", "b", "c", "d")
	b.settle(delivery.Failed, b.claim(4)...)
	b.exec(`UPDATE postlane.deliveries SET reason = CASE WHEN asset IN ('a', 'c') THEN 'timed out' ELSE 'refused' END`)
	retry := sub + "/deliveries/retry"
	b.is.Equal(b.want(200, b.acme, "POST", retry, map[string]any{"dry_run": true, "reason": "timed out"}).object(b)["matched"], 2.)
	b.is.Equal(b.want(200, b.acme, "POST", retry, map[string]any{"dry_run": true, "reason": nil}).object(b)["matched"], 0.)
	b.is.Equal(b.want(200, b.acme, "POST", retry, map[string]any{"dry_run": true}).object(b)["matched"], 4.)
	b.is.Equal(b.want(200, b.acme, "POST", retry, map[string]any{"reason": "timed out"}).object(b)["retried"], 2.)
	b.is.Equal(one[string](b, `SELECT string_agg(asset, ' ' ORDER BY asset) FROM postlane.deliveries WHERE held_at IS NULL`), "a c")
}
