package outbox

import (
	"context"
	"errors"
	"sync"
	"time"
)

// renewing renews the leases of all parts in flight, three times in a lease, until
// the function that it returns is called.
func (r *Relay) renewing() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var renewing sync.WaitGroup
	renewing.Go(func() {
		tick := time.NewTicker(max(r.config.Store.Lease()/3, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				r.renew(ctx)
			}
		}
	})
	return func() { cancel(); renewing.Wait() }
}

// renew renews each part's lease by its last message, which is settled last. A part
// that has been finishing meanwhile does not mind what the answer is.
func (r *Relay) renew(ctx context.Context) {
	type leaseKey struct {
		queue string
		fence int64
	}
	parts := map[leaseKey]*part{}
	var claims []Claim
	r.mu.Lock()
	for p := range r.parts {
		last := p.claims[len(p.claims)-1]
		parts[leaseKey{last.Queue, last.Fence}] = p
		claims = append(claims, Claim{Message: Message{ID: last.ID, Queue: last.Queue}, Seq: last.Seq, Fence: last.Fence})
	}
	r.mu.Unlock()
	if len(claims) == 0 {
		return
	}
	began, lease := time.Now(), r.config.Store.Lease()
	ctx, cancel := context.WithTimeout(ctx, min(storeTimeout, lease))
	defer cancel()
	err := r.config.Store.Renew(ctx, claims...)
	if ctx.Err() != nil && err != nil || err != nil && !errors.Is(err, ErrLeaseLost) {
		if !errors.Is(err, context.Canceled) {
			r.storeAnswered(err)
		}
		return // a part whose lease runs out ends by itself
	}
	for _, c := range lostOf(err) {
		key := leaseKey{c.Queue, c.Fence}
		parts[key].lose()
		delete(parts, key)
	}
	for _, p := range parts {
		p.renewed(began.Add(lease))
	}
}
