package api_test

import (
	"net/url"
	"slices"
	"testing"
	"time"
)

// logOfAMillion fills a subscription's log: a million settled deliveries over 30 days,
// nearly all of them delivered, with a few of every rarity that a person filters for;
// 20,000 more wait, of which two hold their streams.
func (b *bundle) logOfAMillion() (path string) {
	b.t.Helper()
	path = b.subscribe(map[string]any{"on_dead": "hold"})
	id := int64(b.id(path))
	b.exec(`INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, asset, created_at, settled_at, attempts, state, reason)
		SELECT $1, n, 'acme', 'evt_' || n, CASE WHEN n % 10000 = 7 THEN 'rare.type' ELSE 'usual.type_' || n % 9 END, 'asset-' || n % 10007,
		       now() - interval '30 days' + n * interval '2.592 seconds', now(), 1,
		       CASE WHEN n % 5000 = 3 THEN 'dead' WHEN n % 20000 = 11 THEN 'discarded' ELSE 'delivered' END, NULL
		FROM generate_series(1, 1000000) n`, id)
	b.exec(`INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, ready, held_at)
		SELECT $1, n, 'acme', 'evt_' || n, 'usual.type_1', 'asset-' || n % 10007, NULL, CASE WHEN n IN (1000005, 1000010) THEN now() END
		FROM generate_series(1000001, 1020000) n`, id)
	b.exec(`INSERT INTO postlane.leases (subscription_id, seq, fence, claimed_at, lease_until, attempt, tenant, event_id, asset, claimant)
		SELECT subscription_id, seq, 1000 + seq, now(), now() + interval '1 hour', 1, tenant, event_id, asset, 'bench'
		FROM postlane.deliveries WHERE seq BETWEEN 1000100 AND 1000104`)
	b.exec(`SELECT setval('postlane.delivery_seq', 1020000)`)
	b.exec(`ANALYZE postlane.settled, postlane.deliveries`)
	return path
}

// BenchmarkListDeliveries measures the list of a log of a million rows, through the
// whole API, page by page and filter by filter. p99-ms is what counts.
func BenchmarkListDeliveries(bench *testing.B) {
	b := setup(bench)
	path := b.logOfAMillion() + "/deliveries?"
	at := func(d time.Duration) string { return url.QueryEscape(time.Now().Add(d).UTC().Format(time.RFC3339)) }
	thousandth := path
	for range 999 {
		v := b.want(200, b.acme, "GET", thousandth, nil).object(b)
		thousandth = path + "cursor=" + v["next_cursor"].(string)
	}
	for _, c := range []struct{ name, path string }{
		{"first page", path},
		{"page 1000", thousandth},
		{"oldest first", path + "order=oldest"},
		{"dead", path + "state=dead"},
		{"dead, oldest first", path + "state=dead&order=oldest"},
		{"discarded", path + "state=discarded"},
		{"dead and discarded", path + "state=dead,discarded"},
		{"pending", path + "state=pending"},
		{"delivering", path + "state=delivering"},
		{"one asset", path + "asset=asset-77"},
		{"rare type", path + "event_type=rare.type"},
		{"type that is not there", path + "event_type=no.such"},
		{"dead, rare type", path + "state=dead&event_type=rare.type"},
		{"an hour, 20 days ago", path + "since=" + at(-480*time.Hour) + "&until=" + at(-479*time.Hour)},
		{"until 20 days ago", path + "until=" + at(-480*time.Hour)},
		{"since tomorrow", path + "since=" + at(24*time.Hour)},
	} {
		bench.Run(c.name, func(bench *testing.B) {
			var took []time.Duration
			for bench.Loop() {
				began := time.Now()
				b.want(200, b.acme, "GET", c.path, nil)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			bench.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			bench.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		})
	}
}
