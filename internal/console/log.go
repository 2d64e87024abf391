package console

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/dbgen"
)

// logPage is a part of the log of one subscription, or of all.
type logPage struct {
	rows []deliveryRow
	// next is before which id the search goes on, where it did not come to its end, and
	// searched is when what it saw last was written.
	next     delivery.ID
	searched time.Time
}

// log is a page of one subscription's deliveries.
func (v *visit) log(ctx context.Context, sub delivery.SubscriptionID, tenant, url string, f filter, most int) (p logPage, err error) {
	before := f.before.id
	if before != 0 && sub > f.before.sub {
		before++ // of the same event, and still to be shown
	}
	page, err := v.Store.Deliveries(ctx, sub, f.Filter, before, most)
	if err != nil {
		return p, err
	}
	if len(page.Deliveries) < most {
		p.next, p.searched = page.Next, page.Searched
	}
	p.rows = make([]deliveryRow, len(page.Deliveries))
	for i := range page.Deliveries {
		d := &page.Deliveries[i]
		p.rows[i] = deliveryRow{Delivery: *d, Sub: sub, URL: url, Tenant: tenant, Mark: deliveryMark(d)}
	}
	return p, nil
}

// logOfAll is a page of all subscriptions' deliveries. There is no index of all of them,
// and none is needed: the subscriptions are read one by one, in the order of the newest
// delivery that each can have, until none that is left can have a newer one than the page.
//
// Where the search in one of them did not come to its end, the page ends there for all:
// what is older in the others comes with the next one.
func (v *visit) logOfAll(ctx context.Context, f filter, most int) (p logPage, searched int, err error) {
	subscriptions := 2000
	if f.EventType != "" {
		subscriptions = 300 // each is read further than a page, since no index is by type
	}
	before := int64(math.MaxInt64)
	if f.before.id != 0 {
		before = int64(f.before.id) + 1
	}
	arg := &dbgen.ConsoleNewestParams{Before: before, Tenant: v.tenant(), Max: int32(subscriptions)}
	var list []*dbgen.ConsoleNewestRow
	err = v.read(func(tx pgx.Tx) (err error) {
		list, err = newest(ctx, tx, &f, arg)
		return err
	})
	if err != nil {
		return p, 0, err
	}
	f.Within = max(v.Search/time.Duration(max(len(list), 1)), 1)
	for i, s := range list {
		if (len(p.rows) >= most && int64(p.rows[most-1].ID) > s.Newest) || int64(p.next) > s.Newest {
			break
		}
		got, err := v.log(ctx, delivery.SubscriptionID(s.ID), s.Tenant, s.Url, f, most)
		if err != nil {
			return p, 0, err
		}
		if got.next > p.next {
			p.next, p.searched = got.next, got.searched
		}
		p.rows = append(p.rows, got.rows...)
		slices.SortFunc(p.rows, func(a, b deliveryRow) int {
			return cmp.Or(cmp.Compare(b.ID, a.ID), cmp.Compare(a.Sub, b.Sub))
		})
		p.rows = slices.DeleteFunc(p.rows[:min(len(p.rows), most)], func(r deliveryRow) bool { return r.ID < p.next })
		if i == subscriptions-1 {
			searched = subscriptions
		}
	}
	return p, searched, nil
}

// newest lists subscriptions by what they have newest that a filter may choose, or by more
// than that: by the index that is the best for it.
func newest(ctx context.Context, tx pgx.Tx, f *filter, arg *dbgen.ConsoleNewestParams) (list []*dbgen.ConsoleNewestRow, err error) {
	states := f.States
	only := func(these ...delivery.DeliveryState) bool {
		return len(states) > 0 && !slices.ContainsFunc(states, func(s delivery.DeliveryState) bool { return !slices.Contains(these, s) })
	}
	switch {
	case f.OfAsset:
		rows, err := queries.ConsoleNewestOfAsset(ctx, tx, &dbgen.ConsoleNewestOfAssetParams{Asset: f.Asset, Before: arg.Before, Tenant: arg.Tenant, Max: arg.Max})
		for _, r := range rows {
			list = append(list, (*dbgen.ConsoleNewestRow)(r))
		}
		return list, err
	case only(delivery.Pending, delivery.Delivering):
		rows, err := queries.ConsoleNewestLive(ctx, tx, (*dbgen.ConsoleNewestLiveParams)(arg))
		for _, r := range rows {
			list = append(list, (*dbgen.ConsoleNewestRow)(r))
		}
		return list, err
	case only(delivery.Dead, delivery.Discarded):
		rows, err := queries.ConsoleNewestUndelivered(ctx, tx, (*dbgen.ConsoleNewestUndeliveredParams)(arg))
		for _, r := range rows {
			list = append(list, (*dbgen.ConsoleNewestRow)(r))
		}
		return list, err
	}
	return queries.ConsoleNewest(ctx, tx, arg)
}
