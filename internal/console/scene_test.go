package console

import (
	"fmt"
	"strings"

	"github.com/postlane-go/postlane/delivery"
)

// hostile is what an endpoint that means harm answers.
const hostile = `<img src=x onerror="document.title='owned'"></script></textarea></pre><script>document.title='owned'</script>` + "\x00\x1b[31m\u202eevil\xff"

// scene is a site with something of everything.
type scene struct {
	*site
	well, flaky, held, disabled, paused, other *delivery.Subscription
	// dead died of a hostile answer, retried died, was retried and is dead again, holding
	// holds a stream, waiting stands behind it, delivered is delivered, retrying waits.
	dead, retried, holding, waiting, delivered, retrying, flying delivery.ID
}

func (s *site) scene() *scene {
	s.t.Helper()
	x := &scene{site: s}
	describe := func(text string) func(*delivery.Settings) {
		return func(set *delivery.Settings) { set.Description = &text }
	}
	types := func(t ...string) func(*delivery.Settings) {
		return func(set *delivery.Settings) { set.EventTypes = t }
	}
	x.held = s.subscribe("acme", "/ledger", holds, types("ledger.*"), describe("The ledger: order is everything"))
	held := s.enqueue("acme", "ledger.posted", "account-17", "account-17", "account-17", "account-18")
	x.holding, x.waiting = held[0], held[1]
	s.settle(answered(422, `{"error":"unbalanced"}`))

	x.flaky = s.subscribe("acme", "/crm?"+strings.Repeat("route=a-very-long-one&", 80), dies, types("contact.*"), describe("CRM of the sales team"))
	x.dead = s.enqueue("acme", "contact.changed", "contact-1")[0]
	s.settle(answered(500, hostile))
	more := s.enqueue("acme", "contact.changed", "contact-2", "contact-3", "contact-4")
	x.retried = more[0]
	s.settle(refused)
	s.is.NoErr(s.store.ReviveBy(s.ctx, x.flaky.ID, x.retried, "Ada (key_1)"))
	s.settle(refused)

	x.disabled = s.subscribe("acme", "/legacy", func(set *delivery.Settings) { set.MaxAttempts, set.DisableAfter = 1, 1 }, types("legacy.*"))
	s.enqueue("acme", "legacy.synced", "", "")
	s.settle(refused)

	x.well = s.subscribe("acme", "/hooks", types("order.*"), describe("Order pipeline"), func(set *delivery.Settings) {
		set.V1a, set.Headers = true, map[string]string{"X-Tenant": "a secret value"}
	})
	delivered := s.enqueue("acme", "order.paid", names("order", 70)...)
	x.delivered = delivered[len(delivered)-1]
	s.settle(succeed)
	x.retrying = s.enqueue("acme", "order.shipped", "order-900", "order-900")[0]
	s.settle(refused)
	x.flying = s.enqueue("acme", "order.packed", "order-901")[0]
	s.is.Equal(len(s.claim(10)), 1)
	s.enqueue("acme", "order.created", "order-902", "order-903", "order-902")

	x.paused = s.subscribe("other", "/partner", types("*"))
	s.enqueue("other", "thing.done", "", "a", "b")
	_, err := s.store.Pause(s.ctx, x.paused.ID, "the partner moves house")
	s.is.NoErr(err)
	x.other = s.subscribe("other", "/elsewhere", dies)
	s.enqueue("other", "elsewhere.<b>bold</b>"[:9], "x")
	s.settle(answered(410, "gone"))
	s.history(x)
	return x
}

func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return list
}

// history fills the statistics of a day, as Count would have over time.
func (s *site) history(x *scene) {
	s.t.Helper()
	spread := func(scale int64) string {
		h := histogram{}
		for i, n := range []int64{0, 0, 0, 0, 2, 5, 11, 18, 25, 31, 22, 14, 9, 6, 4, 3, 2, 2, 1, 1} {
			h[i] = n * scale / 10
		}
		return strings.Join(strings.Fields(fmt.Sprint(h)), ",")
	}
	array := func(scale int64) string { return "'{" + strings.Trim(spread(scale), "[]") + "}'::bigint[]" }
	s.exec(`INSERT INTO postlane.statistics_minutes
		SELECT t, date_trunc('minute', now()) - m * interval '1 minute', 300 + (120 * sin(m / 9.0))::int + (m * 37) % 60,
		       CASE WHEN m BETWEEN 21 AND 27 THEN 90 - (m - 24) * (m - 24) * 7 ELSE (m * 7) % 5 END, ` + array(10) + `, CASE WHEN m BETWEEN 20 AND 28 THEN ` + array(4) + ` ELSE ` + array(12) + ` END
		FROM generate_series(1, 60) m, unnest('{"",acme}'::text[]) t`)
	for i, sub := range []*delivery.Subscription{x.well, x.flaky, x.held, x.disabled, x.other} {
		s.exec(`INSERT INTO postlane.statistics_spans
			SELECT $1, date_bin('5 minutes', now(), '2000-01-01Z') - m * interval '5 minutes', greatest(0, (400 + 260 * sin(m / 40.0))::int / $2 + (m * 37) % 50),
			       CASE WHEN m % 97 < $2 * 3 THEN 20 * $2 ELSE (m * 7) % (2 * $2) END, `+array(10)+`
			FROM generate_series(1, 287) m`, int64(sub.ID), i+1)
		s.exec(`INSERT INTO postlane.statistics_kinds (subscription_id, at, event_type, outcome, status, attempts)
			SELECT $1, date_trunc('hour', now()) - h * interval '1 hour', k.event_type, k.outcome, k.status, k.n
			FROM generate_series(0, 22) h, (VALUES ('order.paid', 'delivered', 200, 1530), ('order.shipped', 'delivered', 200, 712), ('order.paid', 'delivered', 204, 96),
				('order.paid', 'http_status', 503, 21), ('order.created', 'timeout', -1, 4), ('order.created', 'delivered', 200, 340)) k (event_type, outcome, status, n)`, int64(sub.ID))
	}
}
