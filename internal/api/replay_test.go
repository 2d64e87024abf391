package api_test

import (
	"testing"
	"time"
)

// A range is counted first, replayed under an id of the caller's, and not twice by the same
// request.
func TestReplay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.subscribe(map[string]any{"event_types": []string{"thing.*"}})
	at := path + "/replay"
	b.exec(`INSERT INTO postlane.events (seq, tenant, id, type, asset, content_type, payload, created_at)
		SELECT n, 'acme', 'e' || n, CASE WHEN n % 2 = 0 THEN 'thing.even' ELSE 'thing.odd' END, CASE WHEN n % 4 <> 0 THEN 'asset-' || n % 4 END,
		       'application/json', '{}', '2026-03-01T00:00:00Z'::timestamptz + n * interval '1 minute' FROM generate_series(1, 1200) n`)
	b.exec(`SELECT setval('postlane.delivery_seq', 1200)`)
	before := b.state()
	since := "2026-03-01T00:00:00Z"
	dry := b.want(200, b.acme, "POST", at, map[string]any{"dry_run": true, "since": since}).object(b)
	b.is.Equal(dry, map[string]any{"id": nil, "dry_run": true, "matched": 1200.0, "at_least": false, "kept_since": "2026-03-01T00:01:00Z", "deliveries": 0.0, "done": false})
	for field, test := range map[string]struct {
		value any
		want  float64
	}{
		"until": {"2026-03-01T00:11:00Z", 10}, "event_types": {[]string{"thing.odd"}, 600}, "asset": {"asset-1", 300},
	} {
		b.is.Equal(b.want(200, b.acme, "POST", at, map[string]any{"dry_run": true, "since": since, field: test.value}).object(b)["matched"], test.want)
	}
	b.is.Equal(b.want(200, b.acme, "POST", at, map[string]any{"dry_run": true, "since": since, "asset": nil}).object(b)["matched"], 300.0)
	for _, wrong := range []map[string]any{
		{"since": since}, {"id": "x"}, {"id": "no spaces", "since": since}, {"id": "x", "since": since, "until": since},
		{"id": "x", "since": since, "event_types": []string{"a*"}}, {"id": "x", "since": since, "max": 3},
	} {
		b.refused("invalid", b.do(b.acme, "POST", at, wrong))
	}
	b.refused("not_found", b.do(b.other, "POST", at, map[string]any{"id": "x", "since": since}))
	b.is.Equal(b.state(), before)

	asked := map[string]any{"id": "again-1", "since": since, "event_types": []string{"thing.odd"}}
	did := b.want(200, b.acme, "POST", at, asked).object(b)
	b.is.Equal([]any{did["id"], did["deliveries"], did["done"], did["matched"]}, []any{"again-1", 600.0, true, nil})
	b.is.Equal(b.data(b.want(200, b.acme, "GET", "/v1/audit?limit=1", nil))[0].(map[string]any)["detail"], "replay again-1: 600 deliveries, done")
	after := b.state()
	b.is.Equal(b.want(200, b.acme, "POST", at, asked).object(b)["deliveries"], 600.0)
	asked["until"] = time.Now().Add(time.Hour).Format(time.RFC3339)
	b.refused("replay_conflict", b.do(b.acme, "POST", at, asked))
	b.is.Equal(b.state(), after)

	shown := b.want(200, b.acme, "GET", path+"/deliveries/dlv_1201", nil).object(b)
	b.is.Equal([]any{shown["event_id"], shown["replay"]}, []any{"e1", "again-1"})
	b.is.Equal(one[bool](b, `SELECT bool_and(requested_by LIKE 'a test (key_%') FROM postlane.replays`), true)
}
