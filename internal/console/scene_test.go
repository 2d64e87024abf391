package console

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

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
	x.held = s.subscribe("acme", "https://ledger.acme.example/events", holds, types("ledger.*"), describe("The ledger: order is everything"))
	held := s.enqueue("acme", "ledger.posted", "account-17", "account-17", "account-17", "account-18")
	x.holding, x.waiting = held[0], held[1]
	s.settle(answered(422, `{"error":"unbalanced"}`))

	x.flaky = s.subscribe("acme", longURL("https://crm.acme.example/hooks?"), dies, types("contact.*"), describe("CRM of the sales team"))
	x.dead = s.enqueue("acme", "contact.changed", "contact-1")[0]
	s.settle(answered(500, hostile))
	more := s.enqueue("acme", "contact.changed", "contact-2", "contact-3", "contact-4")
	x.retried = more[0]
	s.settle(refused)
	s.is.NoErr(s.store.ReviveBy(s.ctx, x.flaky.ID, x.retried, "Ada (key_1)"))
	s.settle(refused)

	x.disabled = s.subscribe("acme", "https://legacy.acme.example/sync", func(set *delivery.Settings) { set.MaxAttempts, set.DisableAfter = 1, 2 }, types("legacy.*"))
	s.enqueue("acme", "legacy.synced", "", "ledger")
	s.settle(refused)

	x.well = s.subscribe("acme", "https://api.acme.example/webhooks/orders", types("order.*"), describe("Order pipeline"), func(set *delivery.Settings) {
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

	x.paused = s.subscribe("other", "https://partner.example.net/in", types("*"))
	s.enqueue("other", "thing.done", "", "a", "b")
	_, err := s.store.Pause(s.ctx, x.paused.ID, "the partner moves house")
	s.is.NoErr(err)
	x.other = s.subscribe("other", "https://elsewhere.example.org/", dies)
	s.enqueue("other", "thing.done", "x")
	s.settle(answered(410, "gone"))
	s.describeTypes()
	s.history(x)
	return x
}

// describeTypes writes event types of acme.
func (s *site) describeTypes() {
	s.t.Helper()
	for _, t := range []delivery.EventType{
		{Name: "order.paid", Description: "An order is paid in full; its goods may leave the house", Validate: true, Schema: `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","required":["id","total"],"properties":{"id":{"type":"string","pattern":"^order_[0-9]+$"},"total":{"type":"integer","minimum":1,"description":"in cents </pre><script>document.title='owned'</script>"}}}`},
		{Name: "order.placed", Deprecated: true, Description: "Use order.created"},
		{Name: "contact.changed.with.a.rather.long.name-of-its-own_and-more-of-it.than.fits", Schema: `true`},
	} {
		t.Tenant = "acme"
		_, err := s.store.PutEventType(s.ctx, t)
		s.is.NoErr(err)
	}
}

// longURL is a URL of 2,000 characters.
func longURL(beginning string) string {
	return (beginning + strings.Repeat("route=a-very-long-one&", 100))[:2000]
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
	now := one[time.Time](s, "SELECT now()").UTC()
	wave := func(i int, period, low, high float64) int64 {
		return int64(low + (high-low)*(0.5+0.5*math.Sin(float64(i)/period)) + float64(i*37%11)*(high-low)/60)
	}
	// spread is a histogram of n around a time in milliseconds.
	spread := func(n int64, around float64) []int64 {
		h := make([]int64, len(histogram{}))
		for i := range h {
			at := float64(bounds[min(i, len(bounds)-1)])
			d := math.Log(at / around)
			h[i] = int64(float64(n) * 0.22 * math.Exp(-d*d/0.9))
		}
		return h
	}
	var minutes [][]any
	for m := 1; m <= 60; m++ {
		delivered, failed, around := wave(m, 9, 260, 420), int64(m*7%5), 38+float64(wave(m, 4, 0, 14))
		if m >= 21 && m <= 28 { // an outage of an endpoint
			failed, around = 100-int64(m-24)*int64(m-24)*5, around*1.9
		}
		for _, tenant := range []string{"", "acme"} {
			minutes = append(minutes, []any{tenant, now.Truncate(time.Minute).Add(-time.Duration(m) * time.Minute), delivered, failed, spread(delivered, around), spread(delivered, around*1.6)})
		}
	}
	s.copy("statistics_minutes", []string{"tenant", "at", "delivered", "failed", "answer", "delay"}, minutes)
	for i, sub := range []*delivery.Subscription{x.well, x.flaky, x.held, x.disabled, x.other} {
		var spans, kinds [][]any
		for m := 1; m <= 287; m++ {
			delivered, failed := wave(m, 40, 60, 260)/int64(i+1), int64(m*7%(3*(i+1))/2)
			if m >= 90 && m < 100 {
				failed += delivered / 2
			}
			spans = append(spans, []any{int64(sub.ID), now.Truncate(5 * time.Minute).Add(-time.Duration(m) * 5 * time.Minute), delivered, failed, spread(delivered, 45+float64(wave(m, 11, 0, 40)))})
		}
		s.copy("statistics_spans", []string{"subscription_id", "at", "delivered", "failed", "answer"}, spans)
		for h := range 23 {
			for _, k := range []struct {
				kind, outcome string
				status, n     int
			}{
				{"order.paid", "delivered", 200, 930}, {"order.shipped", "delivered", 200, 512}, {"order.paid", "delivered", 204, 96},
				{"order.paid", "http_status", 503, 21}, {"order.created", "timeout", -1, 4}, {"order.created", "delivered", 200, 340},
			} {
				kinds = append(kinds, []any{int64(sub.ID), now.Truncate(time.Hour).Add(-time.Duration(h) * time.Hour), k.kind, k.outcome, int32(k.status), int64(k.n)})
			}
		}
		s.copy("statistics_kinds", []string{"subscription_id", "at", "event_type", "outcome", "status", "attempts"}, kinds)
	}
}

func (s *site) copy(table string, columns []string, rows [][]any) {
	s.t.Helper()
	_, err := s.pool.CopyFrom(s.ctx, pgx.Identifier{"postlane", table}, columns, pgx.CopyFromRows(rows))
	s.is.NoErr(err)
}
