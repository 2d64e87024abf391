package console

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/postlane-go/postlane/internal/keys"
)

var rowKeys = regexp.MustCompile(`data-key="([^"]+)"`)

// What a filter leaves few of is found page by page, of one endpoint and of all: each says
// how far it looked, and together they show every one once, newest first.
func TestPagesOfARareKind(t *testing.T) {
	t.Parallel()
	s := setup(t, func(c *Config) { c.Search = time.Nanosecond })
	a, b := s.subscribe("acme", "/a"), s.subscribe("acme", "/b")
	// Events go to both; every thousandth is rare, and b got half as many.
	for _, sub := range []struct{ id, every int64 }{{int64(a.ID), 1}, {int64(b.ID), 2}} {
		s.exec(`INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, created_at, settled_at, attempts, state)
			SELECT $1, n, 'acme', 'e' || n, CASE WHEN n % 1000 = 8 THEN 'rare' ELSE 'usual' END, now() - interval '1 second' * (10000 - n), now(), 1, 'delivered'
			FROM generate_series(1, 8000) n WHERE n % $2 = 0`, sub.id, sub.every)
	}
	v := s.signedIn(s.key("acme", keys.Read))
	for _, query := range []struct {
		path string
		rows int
	}{{"deliveries?type=rare", 16}, {"deliveries?type=rare&endpoint=" + b.ID.String(), 8}, {"deliveries?type=none", 0}} {
		var got []string
		pages := 0
		for path := query.path; path != ""; pages++ {
			p := v.get(path)
			s.is.Equal(p.status, 200)
			for _, m := range rowKeys.FindAllStringSubmatch(p.body, -1) {
				got = append(got, m[1])
			}
			if path = p.next(); path != "" {
				v.in(p, "The log was searched back to")
			}
		}
		s.is.True(pages > 3)
		s.is.Equal(len(got), query.rows)
		slices.Sort(got)
		s.is.Equal(len(slices.Compact(got)), query.rows)
	}
}
