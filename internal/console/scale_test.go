package console

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery"
)

// crowd fills a site with n settled deliveries of the last hour, one in fifty of them
// dead, and a fifth as many that wait, over a hundred subscriptions of two tenants; just
// loaded and never analyzed. It returns one of the subscriptions.
func (s *site) crowd(n int) delivery.SubscriptionID {
	s.t.Helper()
	s.exec(`INSERT INTO postlane.subscriptions (tenant, url)
		SELECT 'tenant-' || i % 2, 'https://hooks.example.com/' || i FROM generate_series(1, 100) i`)
	s.exec(`CREATE TABLE public.subs AS SELECT id, tenant, row_number() OVER (ORDER BY id) - 1 AS n FROM postlane.subscriptions`)
	s.exec(`INSERT INTO postlane.settled (subscription_id, created_at, settled_at, attempts, state, tenant, event_id, event_type, asset, reason, seq)
		SELECT s.id, now() - (1 - i / $1::float) * interval '1 hour' - interval '100 ms', now() - (1 - i / $1::float) * interval '1 hour', 1,
		       CASE WHEN i % 50 = 0 THEN 'dead' ELSE 'delivered' END, s.tenant, 'evt_' || i, 'order.' || i % 7, 'asset-' || i % 5000,
		       CASE WHEN i % 50 = 0 THEN 'attempts used up: http_status' END, i
		FROM generate_series(1, $1::int) i JOIN public.subs s ON s.n = i % 100`, n)
	s.exec(`INSERT INTO postlane.attempts (subscription_id, fence, started_at, number, duration_ms, status, tenant, outcome, answer, headers,
			first_byte_us, claimant, seq, recorded_at)
		SELECT s.id, i, now() - (1 - i / $1::float) * interval '1 hour', 1, i * 7 % 200, CASE WHEN i % 50 = 0 THEN 500 ELSE 200 END, s.tenant,
		       CASE WHEN i % 50 = 0 THEN 'http_status' ELSE 'delivered' END, 'ok', 'Content-Length: 2', 900, 'host', i, now() - (1 - i / $1::float) * interval '1 hour'
		FROM generate_series(1, $1::int) i JOIN public.subs s ON s.n = i % 100 ORDER BY i`, n)
	s.exec(`INSERT INTO postlane.deliveries (subscription_id, created_at, due_at, held_at, attempts, ready, tenant, event_id, event_type, asset, reason, seq)
		SELECT s.id, now() - (1 - i / $1::float) * interval '1 hour', CASE WHEN i % 4 = 1 THEN now() + i * interval '10 ms' END,
		       CASE WHEN i % 100 = 0 THEN now() END, 1, CASE WHEN i % 4 <> 1 AND i % 100 <> 0 THEN 10 * $1::bigint + i END, s.tenant, 'evl_' || i,
		       'order.' || i % 7, 'live-' || i, CASE WHEN i % 100 = 0 THEN 'attempts used up: timeout' END, $1::bigint + i
		FROM generate_series(1, $1::int / 5) i JOIN public.subs s ON s.n = i % 99`, n)
	s.exec("SELECT setval('postlane.delivery_seq', 20 * $1::bigint)", n)
	return delivery.SubscriptionID(one[int64](s, "SELECT id FROM public.subs WHERE n = 50"))
}

// crowdSize is how many deliveries there are: POSTLANE_TEST_CROWD, or 100,000.
func crowdSize() int {
	if n, err := strconv.Atoi(os.Getenv("POSTLANE_TEST_CROWD")); err == nil {
		return n
	}
	return 100_000
}

// Every page answers also with many deliveries, before and after the statistics are
// counted. How long each takes is logged, for a run with -v and POSTLANE_TEST_CROWD.
func TestEveryPageOfManyDeliveries(t *testing.T) {
	t.Parallel()
	s := setup(t)
	n := crowdSize()
	sub := s.crowd(n)
	// The last minutes, as they are until they are counted; then all is.
	s.exec("UPDATE postlane.statistics_progress SET at = date_trunc('minute', now()) - interval '2 minutes'")
	operator, tenant := s.signedIn(operatorKey), s.signedIn(s.key("tenant-0", "write"))
	of := endpointPath(sub)
	pages := func(when string) {
		for who, v := range map[string]*visitor{"operator": operator, "tenant": tenant} {
			for _, path := range []string{
				"", "endpoints", "endpoints?q=hooks.example.com%2F9", of, of + "?window=hour", of + "/streams", of + "/deleting", "deliveries",
				"deliveries?state=dead", "deliveries?state=delivering", "deliveries?state=pending", "deliveries?endpoint=" + sub.String(),
				"deliveries?before=" + strconv.Itoa(n/2) + "-0", "deliveries?asset=asset-49", "deliveries?type=no.such&endpoint=" + sub.String(),
				deliveryPath(sub, 50), deliveryPath(sub, delivery.ID(n-50)), "dead", "dead/" + sub.String() + "?reason=attempts+used+up:+http_status",
				"dead/" + sub.String() + "/retrying?reason=attempts+used+up:+http_status", "streams", "audit",
			} {
				began := time.Now()
				p := v.get(path)
				took := time.Since(began)
				t.Logf("%s, %s, %-70s %d %v", when, who, path, p.status, took.Round(time.Millisecond))
				if p.status != 200 && p.status != 404 { // the other tenant's
					t.Errorf("%s: %d %s", path, p.status, p.text())
				}
			}
		}
	}
	pages("fresh")
	s.exec("UPDATE postlane.statistics_progress SET at = date_trunc('minute', now()) - interval '1 hour'")
	began, every := time.Now(), int64(1)
	s.console.summarize(s.ctx)
	t.Logf("summarized in %v", time.Since(began).Round(time.Millisecond))
	for {
		read, more, err := s.console.countMinute(s.ctx, every)
		s.is.NoErr(err)
		if !more {
			break
		}
		every = sampling(read, every)
	}
	t.Logf("counted in %v", time.Since(began).Round(time.Millisecond))
	pages("counted")
}
