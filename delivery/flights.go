package delivery

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// flight is a claim of this dispatcher, from the claim until its lease has ended: a
// delivery, and those that are sent after it in its stream.
type flight struct {
	claim Claim
	// ahead is what may be sent after it; it comes when it has been read.
	ahead chan []Claim
	// claimed is from before the claim was asked for, answered from after, and renewed
	// from before the lease was last asked for: the lease ends no earlier than that plus
	// its length.
	claimed, answered, renewed time.Time
	// concluded: its verdict is on its way, and settling tells whether the lease
	// was held.
	concluded atomic.Bool
	refused   refused
	ctx       context.Context
	cancel    context.CancelCauseFunc
}

func (f *flight) key() claimKey {
	return claimKey{int64(f.claim.Subscription), f.claim.Seq, f.claim.Fence}
}

// aheadWithin is how long after its claim a flight waits for what follows.
const aheadWithin = 500 * time.Millisecond

// awaitAhead returns what may be sent behind the claim, none if it is not read soon: a
// database that is slow to say must not keep the stream.
func (f *flight) awaitAhead() []Claim {
	late := time.NewTimer(aheadWithin - time.Since(f.claimed))
	defer late.Stop()
	select {
	case ahead := <-f.ahead:
		return ahead
	case <-late.C:
	case <-f.ctx.Done():
	}
	return nil
}

// flights are all claims of a dispatcher.
type flights struct {
	mu    sync.Mutex
	all   map[claimKey]*flight
	limit int
	// empty is closed when closing and nothing is in flight.
	empty   chan struct{}
	closing bool
}

func newFlights(limit int) *flights {
	return &flights{all: map[claimKey]*flight{}, limit: limit, empty: make(chan struct{})}
}

// free returns how many more may be in flight.
func (s *flights) free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit - len(s.all)
}

func (s *flights) add(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[f.key()] = f
}

// remove ends flights.
func (s *flights) remove(fs ...*flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range fs {
		delete(s.all, f.key())
	}
	s.closeIfEmpty()
}

// close makes empty close as soon as nothing is in flight.
func (s *flights) close() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	s.closeIfEmpty()
	return s.empty
}

// stopping reports whether close was called.
func (s *flights) stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

func (s *flights) closeIfEmpty() {
	if s.closing && len(s.all) == 0 && s.empty != nil {
		select {
		case <-s.empty:
		default:
			close(s.empty)
		}
	}
}

// stale returns the flights whose lease was last asked for longer ago than age.
func (s *flights) stale(age time.Duration) []*flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*flight
	for _, f := range s.all {
		if time.Since(f.renewed) >= age {
			list = append(list, f)
		}
	}
	return list
}

func (s *flights) touch(fs []*flight, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range fs {
		f.renewed = at
	}
}

func (s *flights) cancelAll(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.all {
		f.cancel(cause)
	}
}

func (s *flights) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
