package delivery

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

const (
	// floorAge is how old floors are at least when a claim uses them: what a
	// transaction wrote and committed within that time lies above.
	floorAge = 500 * time.Millisecond
	// wholeLook is how often a claim goes without floors: how long a delivery may
	// wait that was committed later than floorAge after it was written. Where that
	// costs much, beside an old snapshot, it is every wholeShare-th of the time, up
	// to wholeMost.
	wholeLook  = 2 * time.Second
	wholeShare = 50
	wholeMost  = 30 * time.Second
	// floorWorth is how many streams must have been claimed between two looks for
	// floors to be worth it.
	floorWorth = 100
	// maxFloors bounds of how many subscriptions they are kept.
	maxFloors = 5000
)

// floor is where the reading of a subscription begins.
type floor struct{ ready, fence int64 }

// floors are where the reading of each subscription begins that this process has claimed
// of: beside an old snapshot a claim steps over nothing that it consumed long ago.
type floors struct {
	mu sync.Mutex
	// all are those found by now, and used those of the look before the last, as
	// arrays parallel to each other, in the order of ids.
	all  map[int64]floor
	used dbgen.ClaimFloorsParams
	// claimed are the subscriptions that were claimed of since the last look, and
	// streams how many streams.
	claimed map[SubscriptionID]bool
	streams int
	looked  time.Time // last
	whole   time.Time // when a claim last went without floors
	wait    time.Duration
}

// known returns the floors that are used.
func (f *floors) known() dbgen.ClaimFloorsParams {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used
}

// begin returns the floors for a claim, none if it is to go without.
func (f *floors) begin(now time.Time) (known dbgen.ClaimFloorsParams, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.whole) >= max(f.wait, wholeLook) {
		f.whole = now
		return dbgen.ClaimFloorsParams{}, true
	}
	return f.used, false
}

// cost says how long a claim without floors took.
func (f *floors) cost(took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wait = min(wholeShare*took, wholeMost)
}

// look queues the look for floors if it is due: at what was claimed of since the last,
// from its floors on or, beside a claim without floors, from the beginning.
func (f *floors) look(b *pgx.Batch, now time.Time, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.looked) < floorAge {
		return
	}
	f.looked = now
	f.used = f.arrays()
	if f.streams >= floorWorth {
		var ask dbgen.ClaimFloorsParams
		for id := range f.claimed {
			from := f.all[int64(id)]
			if whole {
				from = floor{}
			}
			ask.Ids = append(ask.Ids, int64(id))
			ask.Ready = append(ask.Ready, from.ready)
			ask.Fences = append(ask.Fences, from.fence)
		}
		b.Queue(dbgen.ClaimFloors, ask.Ids, ask.Ready, ask.Fences).Query(f.read)
	}
	clear(f.claimed)
	f.streams = 0
}

func (f *floors) arrays() (a dbgen.ClaimFloorsParams) {
	a.Ids = slices.Sorted(maps.Keys(f.all))
	for _, id := range a.Ids {
		a.Ready = append(a.Ready, f.all[id].ready)
		a.Fences = append(a.Fences, f.all[id].fence)
	}
	return a
}

func (f *floors) read(rows pgx.Rows) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil || len(f.all) > maxFloors {
		f.all = map[int64]floor{}
	}
	for rows.Next() {
		var id int64
		var at floor
		if err := rows.Scan(&id, &at.ready, &at.fence); err != nil {
			return err
		}
		f.all[id] = at
	}
	return rows.Err()
}

// note remembers what was claimed of.
func (f *floors) note(claims []Claim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.claimed == nil {
		f.claimed = map[SubscriptionID]bool{}
	}
	for i := range claims {
		f.claimed[claims[i].Subscription] = true
	}
	f.streams += len(claims)
}
