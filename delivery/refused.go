package delivery

import (
	"context"
	"sync"
	"time"
)

// refusedLeases is for how many leases a verdict is kept that the database refuses to
// record.
const refusedLeases = 4

// refused are a flight's verdicts that wait for one that the database refuses to record,
// it first: none is settled before one that it follows.
type refused struct {
	mu      sync.Mutex
	list    []settling
	givenUp bool
}

// add puts a verdict behind those that wait, if any do, and reports whether it did.
func (r *refused) add(s settling) (waits, givenUp bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == 0 || r.givenUp {
		return false, r.givenUp
	}
	r.list = append(r.list, s)
	return true, false
}

// begin makes a verdict the first that waits.
func (r *refused) begin(s settling) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, s)
}

// any reports whether verdicts wait.
func (r *refused) any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.list) > 0
}

// first returns the verdict to record, and next takes it away and returns the one behind.
func (r *refused) first() settling {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list[0]
}

// giveUp returns the verdicts that wait and refuses all that come.
func (r *refused) giveUp() []settling {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.givenUp = true
	return r.list
}

func (r *refused) next() (s settling, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list = r.list[1:]; len(r.list) == 0 {
		return s, false
	}
	return r.list[0], true
}

// settleRefused goes on trying to record a verdict that the database refuses, beside those
// of other flights, and then the ones of its own that came after it. When it lets go, the
// lease runs out, the attempt is recorded as stalled, and what cannot be recorded ends as
// a dead letter instead of holding its stream for ever.
func (d *Dispatcher) settleRefused(ctx context.Context, f *flight, err error) {
	for s, more := f.refused.first(), true; more; s, more = f.refused.next() {
		if !d.insist(ctx, s, err) {
			if ctx.Err() == nil {
				f.cancel(ErrLeaseLost)
				for _, s := range f.refused.giveUp() {
					d.forget(s)
				}
				d.end(f)
			}
			return
		}
		err = nil
	}
}

// waits reports whether a verdict is not to be settled now: another of its flight is
// refused, or was until it was given up.
func (d *Dispatcher) waits(s settling) bool {
	waits, givenUp := s.flight.refused.add(s)
	if givenUp {
		d.forget(s)
	}
	return waits || givenUp
}

// forget gives back the place of a verdict that will not be settled.
func (d *Dispatcher) forget(s settling) {
	if s.result.Next != nil {
		<-d.unsettled
	}
}

// insist records a verdict, of which err is the last refusal if there was one, and reports
// whether it could.
func (d *Dispatcher) insist(ctx context.Context, s settling, err error) bool {
	c := s.result.Claim
	fails := backoff{first: 50 * time.Millisecond, most: 2 * time.Second}
	for began := time.Now(); time.Since(began) < refusedLeases*d.config.Lease; {
		if err != nil {
			wait := fails.next()
			d.log.Error("the database refuses to record an attempt; trying again", "error", err,
				"subscription", c.Subscription, "delivery", c.ID(), "attempt", c.Attempt, "wait", wait)
			if pause(ctx, wait) != nil {
				return false
			}
		}
		if err = d.trySettle(ctx, []settling{s}); err == nil {
			return true
		}
	}
	d.log.Error("an attempt could not be recorded; its delivery is sent again or dead when its lease ends", "error", err,
		"subscription", c.Subscription, "delivery", c.ID(), "attempt", c.Attempt)
	return false
}
