package delivery

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// openings are the breakers that a dispatcher opened and has not seen closed. Whoever told
// that a breaker opened tells that it closed, so that each is told once. A success closes
// it in the statement that settles it, which would have to say so for every delivery, so
// upkeep looks instead.
type openings struct {
	mu   sync.Mutex
	open map[SubscriptionID]opening
}

type opening struct {
	// at is when it was told, by this process's clock.
	at time.Time
	// since is when it opened, by the database's; zero until it was looked for.
	since time.Time
}

// add notes that a breaker opened, and returns the opening that it follows: it has closed
// in between.
func (o *openings) add(id SubscriptionID) (before opening, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[SubscriptionID]opening{}
	}
	before, closed = o.open[id]
	o.open[id] = opening{at: time.Now()}
	return before, closed
}

// closed returns those that have closed, and forgets them.
func (o *openings) closed(ctx context.Context, s *Store) (map[SubscriptionID]opening, error) {
	o.mu.Lock()
	asked := maps.Clone(o.open)
	o.mu.Unlock()
	if len(asked) == 0 {
		return nil, nil
	}
	ids := make([]int64, 0, len(asked))
	for _, id := range slices.Sorted(maps.Keys(asked)) {
		ids = append(ids, int64(id))
	}
	rows, err := queries.BreakerStillOpen(ctx, s.pool, ids)
	if err != nil {
		return nil, err
	}
	since := make(map[SubscriptionID]time.Time, len(rows))
	for _, r := range rows {
		since[SubscriptionID(r.SubscriptionID)] = r.OpenSince
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	gone := map[SubscriptionID]opening{}
	for id, was := range asked {
		at, open := since[id]
		switch {
		case o.open[id] != was: // opened anew while this looked
		case open && (was.since.IsZero() || was.since.Equal(at)):
			o.open[id] = opening{was.at, at}
		default: // closed, or another's by now
			gone[id] = was
			delete(o.open, id)
		}
	}
	return gone, nil
}

// tellOpened tells that a breaker opened.
func (d *Dispatcher) tellOpened(r *Result) {
	id := r.Claim.Subscription
	if before, closed := d.targets.openings.add(id); closed {
		d.tellClosed(id, before)
	}
	d.log.Warn("endpoint is unavailable: only probes are sent until one succeeds", "subscription", id,
		"outcome", r.Attempt.Outcome, "status", r.Attempt.Status)
	if f := d.config.Observer.Opened; f != nil {
		f(id)
	}
}

// tellClosed tells that a breaker that opened has closed.
func (d *Dispatcher) tellClosed(id SubscriptionID, was opening) {
	after := time.Since(was.at)
	d.log.Info("endpoint is available again: its breaker has closed", "subscription", id, "after", after)
	if f := d.config.Observer.Closed; f != nil {
		f(id, after)
	}
}

// watchBreakers tells of breakers that closed, how many are open, and of how many that is.
func (d *Dispatcher) watchBreakers(ctx context.Context) error {
	closed, err := d.targets.openings.closed(ctx, d.store)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(closed)) {
		d.tellClosed(id, closed[id])
	}
	if f := d.config.Observer.OpenBreakers; f != nil {
		n, longest, err := d.store.OpenBreakers(ctx)
		if err != nil {
			return err
		}
		f(int(n), longest)
	}
	if f := d.config.Observer.ActiveSubscriptions; f != nil {
		n, err := d.store.ActiveSubscriptions(ctx)
		if err != nil {
			return err
		}
		f(int(n))
	}
	return nil
}
