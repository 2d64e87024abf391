package delivery

import (
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
	// wait that was committed later than floorAge after it was written.
	wholeLook = 2 * time.Second
	// floorWorth is how many streams must have been claimed between two looks for
	// floors to be worth it.
	floorWorth = 100
	// maxFloors bounds of how many subscriptions they are kept.
	maxFloors = 5000
)

// floor is where the reading of a subscription begins.
type floor struct{ ready, fence int64 }

// floors are where the reading of each subscription begins that this process has claimed
// of lately: beside an old snapshot a claim steps over nothing that it consumed long ago.
type floors struct {
	mu sync.Mutex
	// used are those of the look before the last: arrays parallel to each other, in
	// the order of ids.
	used, next dbgen.ClaimFloorsParams
	// claimed are the subscriptions that were claimed of since the last look, and
	// streams how many streams.
	claimed map[SubscriptionID]bool
	streams int
	looked  time.Time // last
	whole   time.Time // when a claim last went without floors
}

// begin returns the floors for a claim, and queues the look that is due.
func (f *floors) begin(b *pgx.Batch, now time.Time) dbgen.ClaimFloorsParams {
	f.mu.Lock()
	defer f.mu.Unlock()
	whole := now.Sub(f.whole) >= wholeLook
	if whole {
		f.whole = now
	}
	if now.Sub(f.looked) >= floorAge {
		f.look(b, whole)
		f.looked = now
	}
	if whole {
		return dbgen.ClaimFloorsParams{}
	}
	return f.used
}

// look queues the look for what was claimed of since the last, from its floors on or,
// beside a claim without floors, from the beginning.
func (f *floors) look(b *pgx.Batch, whole bool) {
	f.used, f.next = f.next, dbgen.ClaimFloorsParams{}
	worth := f.streams >= floorWorth && len(f.claimed) <= maxFloors
	var ask dbgen.ClaimFloorsParams
	if worth {
		for id := range f.claimed {
			ask.Ids = append(ask.Ids, int64(id))
		}
		slices.Sort(ask.Ids)
		for _, id := range ask.Ids {
			from := floor{}
			if i, found := slices.BinarySearch(f.used.Ids, id); found && !whole {
				from = floor{f.used.Ready[i], f.used.Fences[i]}
			}
			ask.Ready = append(ask.Ready, from.ready)
			ask.Fences = append(ask.Fences, from.fence)
		}
	}
	clear(f.claimed)
	f.streams = 0
	if worth {
		b.Queue(dbgen.ClaimFloors, ask.Ids, ask.Ready, ask.Fences).Query(f.read)
	}
}

func (f *floors) read(rows pgx.Rows) error {
	var found dbgen.ClaimFloorsParams
	for rows.Next() {
		var id int64
		var at floor
		if err := rows.Scan(&id, &at.ready, &at.fence); err != nil {
			return err
		}
		found.Ids = append(found.Ids, id)
		found.Ready = append(found.Ready, at.ready)
		found.Fences = append(found.Fences, at.fence)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = found
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
