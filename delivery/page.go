package delivery

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// Page is a part of a subscription's log.
type Page struct {
	Deliveries []Delivery
	// Next is where the next page begins; 0: there is none. A page may be short, even
	// empty, and still have a next one: the filter leaves so few entries that they were
	// not found within its time.
	Next ID
	// Searched is when the last entry was written that was looked at, where the page is
	// short and not the last; else zero.
	Searched time.Time
}

// Deliveries returns up to max entries of a subscription's log, newest first, before the
// given one (0: from the newest): go on before Page.Next. Ids are unique, so pages neither
// repeat nor skip. No page takes long: see Page.Next.
func (s *Store) Deliveries(ctx context.Context, sub SubscriptionID, f Filter, before ID, max int) (Page, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	return s.page(ctx, newestFirst, sub, f, 0, before, max)
}

// DeliveriesOldest is Deliveries, oldest first, after the given one (0: from the oldest).
func (s *Store) DeliveriesOldest(ctx context.Context, sub SubscriptionID, f Filter, after ID, max int) (Page, error) {
	return s.page(ctx, oldestFirst, sub, f, after, math.MaxInt64, max)
}

// direction is one of a log, with the queries that read it.
type direction struct {
	list, window string
	// window's answer bounds the side that is read last, and what comes next begins
	// with it.
	limit func(after, before, at ID) (ID, ID)
	next  func(after, before, at ID) (newAfter, newBefore, position ID)
}

var (
	newestFirst = direction{
		dbgen.LogList, dbgen.LogWindow,
		func(_, before, at ID) (ID, ID) { return at, before },
		func(after, _, at ID) (ID, ID, ID) { return after, at + 1, at + 1 },
	}
	oldestFirst = direction{
		dbgen.LogListOldest, dbgen.LogWindowOldest,
		func(after, _, at ID) (ID, ID) { return after, at },
		func(_, before, at ID) (ID, ID, ID) { return at - 1, before, at - 1 },
	}
)

// A window is how many entries are searched at a time: few at first, for what is found
// there, and more and more of them, each some milliseconds' work.
const (
	firstWindow = 1000
	lastWindow  = 50_000
)

// search is the reading of one page.
type search struct {
	store   *Store
	sub     SubscriptionID
	f       Filter
	dir     direction
	settled []string
}

func (s *Store) page(ctx context.Context, dir direction, sub SubscriptionID, f Filter, after, before ID, limit int) (page Page, err error) {
	if len(f.States) == 0 {
		f.States = DeliveryStates
	}
	r := search{store: s, sub: sub, f: f, dir: dir}
	for _, state := range f.States {
		if _, err := ParseDeliveryState(string(state)); err != nil {
			return page, err
		}
		if state != Pending && state != Delivering {
			r.settled = append(r.settled, string(state))
		}
	}
	page.Deliveries = make([]Delivery, 0, min(limit, 1000))
	if err := r.run(ctx, &page, after, before, limit); err != nil {
		return Page{}, fmt.Errorf("delivery: list deliveries of %v: %w", sub, err)
	}
	return page, nil
}

func (r *search) run(ctx context.Context, page *Page, after, before ID, limit int) error {
	began := time.Now()
	if !r.f.Since.IsZero() || !r.f.Until.IsZero() {
		from, to, err := r.bounds(ctx)
		if err != nil {
			return err
		}
		after, before = max(after, from), min(before, to)
	}
	for entries := firstWindow; ; entries = min(2*entries, lastWindow) {
		low, high := after, before
		var end ID // of the window; 0: it holds all that is left
		if r.sparse() {
			var err error
			if end, page.Searched, err = r.window(ctx, after, before, entries); err != nil {
				return err
			}
			if end != 0 {
				low, high = r.dir.limit(after, before, end)
			}
		}
		if err := r.list(ctx, page, low, high, limit-len(page.Deliveries)); err != nil {
			return err
		}
		if len(page.Deliveries) >= limit {
			page.Next, page.Searched = page.Deliveries[len(page.Deliveries)-1].ID, time.Time{}
			return nil
		}
		if end == 0 {
			return nil
		}
		after, before, page.Next = r.dir.next(after, before, end)
		if time.Since(began) > cmp.Or(r.f.Within, 300*time.Millisecond) {
			return nil
		}
		page.Next = 0
	}
}

func (r *search) has(states ...DeliveryState) bool {
	return slices.ContainsFunc(states, func(s DeliveryState) bool { return slices.Contains(r.f.States, s) })
}

// sparse reports whether the filter may leave few of what an index has.
func (r *search) sparse() bool {
	undelivered := r.has(Dead) && r.has(Discarded)
	return r.f.EventType != "" || !r.f.Since.IsZero() || !r.f.Until.IsZero() ||
		(r.has(Delivered) && !undelivered) || (r.has(Discarded) && !undelivered) || (r.has(Pending) && !r.has(Dead))
}

// bounds is between which ids, neither included, entries of the filter's time lie.
func (r *search) bounds(ctx context.Context) (after, before ID, err error) {
	err = r.store.bounded(ctx, func(b *pgx.Batch) {
		b.Queue(dbgen.LogBounds, int64(r.sub), optional(r.f.Since), optional(r.f.Until)).
			QueryRow(func(row pgx.Row) error { return row.Scan(&after, &before) })
	})
	return after, before, err
}

// window is where the next so many entries end, and when that one was written; 0 if there
// are not so many.
func (r *search) window(ctx context.Context, after, before ID, entries int) (end ID, at time.Time, err error) {
	live, done := r.has(Pending, Dead), len(r.settled) > 0 // what is in flight is few
	heldOnly, undeliveredOnly := !r.has(Pending), !r.has(Delivered)
	deadOnly := undeliveredOnly && !r.has(Discarded)
	err = r.store.bounded(ctx, func(b *pgx.Batch) {
		b.Queue(r.dir.window, int64(r.sub), live, int64(before), int64(after), heldOnly, r.f.OfAsset, r.f.Asset, int32(entries),
			done, deadOnly, undeliveredOnly).
			Query(func(rows pgx.Rows) error {
				for rows.Next() {
					if err := rows.Scan(&end, &at); err != nil {
						return err
					}
				}
				return rows.Err()
			})
	})
	return end, at, err
}

// list adds to a page up to limit entries between after and before.
func (r *search) list(ctx context.Context, page *Page, after, before ID, limit int) error {
	return r.store.bounded(ctx, func(b *pgx.Batch) {
		b.Queue(r.dir.list, int32(limit), int64(r.sub), int64(before), int64(after), r.has(Dead), r.has(Pending), r.has(Delivering),
			r.f.OfAsset, r.f.Asset, r.f.EventType, optional(r.f.Since), optional(r.f.Until), len(r.settled) > 0, r.settled).
			Query(func(rows pgx.Rows) error {
				read, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[dbgen.LogListRow])
				for _, row := range read {
					page.Deliveries = append(page.Deliveries, newDelivery(row))
				}
				return err
			})
	})
}
