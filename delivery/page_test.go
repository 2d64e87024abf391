package delivery_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery"
)

// A filter that leaves few of many entries is answered page by page, each after its time:
// short ones among them, but together neither more nor less than there is, in order.
func TestPagesOfARareKind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(func(s *delivery.Settings) { s.OnDead = delivery.Hold })
	b.exec(`INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, asset, created_at, settled_at, attempts, state)
		SELECT $1, n, 'acme', 'e' || n, CASE WHEN n % 1500 = 7 THEN 'rare' ELSE 'usual' END, 'a' || n % 2, now() - interval '1 second' * (30000 - n), now(), 1,
		       CASE WHEN n % 10 = 3 THEN 'dead' WHEN n % 10 = 4 THEN 'discarded' ELSE 'delivered' END
		FROM generate_series(1, 20000) n`, sub)
	b.exec(`INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, ready, created_at, held_at)
		SELECT $1, n, 'acme', 'e' || n, CASE WHEN n % 1500 = 7 THEN 'rare' ELSE 'usual' END, 'a' || n % 2, NULL, now() - interval '1 second' * (30000 - n), CASE WHEN n % 2 = 0 THEN now() END
		FROM generate_series(20001, 26000) n`, sub)
	of := func(where string) []int64 {
		return one[[]int64](b, `SELECT coalesce(array_agg(seq ORDER BY seq DESC), '{}') FROM (
			SELECT seq, event_type, state, asset, created_at FROM postlane.settled
			UNION ALL SELECT seq, event_type, CASE WHEN held_at IS NULL THEN 'pending' ELSE 'dead' END, asset, created_at FROM postlane.deliveries) x WHERE `+where)
	}
	since := one[time.Time](b, `SELECT created_at FROM postlane.settled WHERE seq = 9000`)
	for name, c := range map[string]struct {
		f     delivery.Filter
		where string
	}{
		"rare":                   {delivery.Filter{EventType: "rare"}, "event_type = 'rare'"},
		"of a type there is not": {delivery.Filter{EventType: "none"}, "false"},
		"rare and dead":          {delivery.Filter{EventType: "rare", States: []delivery.DeliveryState{delivery.Dead}}, "event_type = 'rare' AND state = 'dead'"},
		"rare of an asset":       {delivery.Filter{EventType: "rare", OfAsset: true, Asset: "a1"}, "event_type = 'rare' AND asset = 'a1'"},
		"rare and pending":       {delivery.Filter{EventType: "rare", States: []delivery.DeliveryState{delivery.Pending}}, "event_type = 'rare' AND state = 'pending'"},
		"rare and late":          {delivery.Filter{EventType: "rare", Since: since}, "event_type = 'rare' AND seq >= 9000"},
		"discarded":              {delivery.Filter{States: []delivery.DeliveryState{delivery.Discarded}}, "state = 'discarded'"},
		"delivered":              {delivery.Filter{States: []delivery.DeliveryState{delivery.Delivered}}, "state = 'delivered'"},
		"undelivered":            {delivery.Filter{States: []delivery.DeliveryState{delivery.Dead, delivery.Discarded}}, "state IN ('dead', 'discarded')"},
	} {
		want := of(c.where)
		for _, oldest := range []bool{false, true} {
			read := b.store.Deliveries
			if oldest {
				read = b.store.DeliveriesOldest
			}
			for _, within := range []time.Duration{1, time.Hour} {
				c.f.Within = within
				got, short := all(b, read, sub, c.f, 500)
				if oldest {
					slices.Reverse(got)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s, oldest first %v: %d are listed and not %d", name, oldest, len(got), len(want))
				}
				if within == time.Hour {
					b.is.Equal(short, 0)
				} else if name == "rare" {
					b.is.True(short > 5)
				}
			}
		}
	}
}

// all reads every page, and says how many were short and not the last.
func all(b *bundle, read func(context.Context, delivery.SubscriptionID, delivery.Filter, delivery.ID, int) (delivery.Page, error),
	sub delivery.SubscriptionID, f delivery.Filter, limit int,
) (ids []int64, short int) {
	b.t.Helper()
	for at, more := delivery.ID(0), true; more; {
		page, err := read(b.ctx, sub, f, at, limit)
		b.is.NoErr(err)
		for _, d := range page.Deliveries {
			ids = append(ids, int64(d.ID))
		}
		b.is.Equal(page.Searched.IsZero(), len(page.Deliveries) == limit || page.Next == 0)
		if page.Next != 0 && len(page.Deliveries) < limit {
			short++
		}
		b.is.True(page.Next != at || at == 0)
		at, more = page.Next, page.Next != 0
	}
	return ids, short
}
