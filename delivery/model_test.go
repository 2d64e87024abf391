package delivery_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/postlane-go/postlane/delivery"
)

// model is what the design says of subscriptions, streams and deliveries, in memory and
// with nothing of how the database does it: no ready mark, no rank, no parking.
type model struct {
	now        time.Time
	subs       map[delivery.SubscriptionID]*modelSub
	deliveries map[deliveryKey]*modelDelivery
	events     map[string]delivery.Event // by id
	seqs       map[string]int64
}

type deliveryKey struct {
	sub delivery.SubscriptionID
	seq int64
}

type modelSub struct {
	id           delivery.SubscriptionID
	types        string // "*" or "thing.*"
	state        delivery.State
	failures     int
	onDead       delivery.OnDead
	maxAttempts  int
	disableAfter int
	maxInFlight  int
	deleted      bool
}

type modelDelivery struct {
	deliveryKey
	asset    string
	state    delivery.DeliveryState
	attempts int // charged
	due      time.Time
	held     bool
	reason   string
	tries    int // attempts that are recorded

	// while it is in flight
	fence   int64
	attempt int
	lease   time.Time
	ahead   int // how many behind it may be sent under its lease
}

func newModel(now time.Time) *model {
	return &model{
		now: now, subs: map[delivery.SubscriptionID]*modelSub{}, deliveries: map[deliveryKey]*modelDelivery{},
		events: map[string]delivery.Event{}, seqs: map[string]int64{},
	}
}

// live reports whether a delivery occupies its stream.
func (d *modelDelivery) live() bool {
	return d.state == delivery.Pending || d.state == delivery.Delivering || d.held
}

func (d *modelDelivery) settle(state delivery.DeliveryState, reason string) {
	d.state, d.reason, d.held, d.due = state, reason, false, time.Time{}
}

// stream returns the live deliveries of a stream, in order.
func (m *model) stream(sub delivery.SubscriptionID, asset string) []*modelDelivery {
	var list []*modelDelivery
	for _, d := range m.deliveries {
		if d.sub == sub && d.asset == asset && d.live() {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b *modelDelivery) int { return cmp.Compare(a.seq, b.seq) })
	return list
}

func (m *model) enqueued(e delivery.Event, seq int64) {
	m.events[e.ID], m.seqs[e.ID] = e, seq
	for id, s := range m.subs {
		if s.deleted || s.types != "*" && !strings.HasPrefix(e.Type, strings.TrimSuffix(s.types, "*")) {
			continue
		}
		k := deliveryKey{id, seq}
		m.deliveries[k] = &modelDelivery{deliveryKey: k, asset: e.Asset, state: delivery.Pending}
	}
}

// claimable reports why a delivery may not be claimed, or nil.
func (m *model) claimable(d *modelDelivery) error {
	stream := m.stream(d.sub, d.asset)
	switch s := m.subs[d.sub]; {
	case s.state != delivery.Active || s.deleted:
		return fmt.Errorf("its subscription is %s, deleted %v", s.state, s.deleted)
	case d.state != delivery.Pending:
		return fmt.Errorf("it is %s", d.state)
	case !d.due.IsZero():
		return errors.New("its time has not come")
	case stream[0] != d:
		return fmt.Errorf("%d is before it", stream[0].seq)
	}
	for _, x := range stream {
		if x.state == delivery.Delivering {
			return fmt.Errorf("%d is in flight", x.seq)
		}
	}
	return nil
}

func (m *model) inFlight(sub delivery.SubscriptionID) (n int) {
	for _, d := range m.deliveries {
		if d.sub == sub && d.state == delivery.Delivering {
			n++
		}
	}
	return n
}

// claimed checks a claim against what may be claimed, and takes it over.
func (m *model) claimed(claims []delivery.Claim, r delivery.ClaimRequest) error {
	if len(claims) > r.Max {
		return fmt.Errorf("%d claims, asked for %d", len(claims), r.Max)
	}
	for i := range claims {
		c := &claims[i]
		d := m.deliveries[deliveryKey{c.Subscription, c.Seq}]
		if d == nil {
			return fmt.Errorf("claimed %v, which there is not", c.ID())
		}
		if err := m.claimable(d); err != nil {
			return fmt.Errorf("claimed %v of %q: %w", c.ID(), d.asset, err)
		}
		if c.Asset != d.asset || c.Attempt != d.attempts+1 || c.Prev != m.before(d) {
			return fmt.Errorf("claimed %+v, not asset %q, attempt %d, after %d", *c, d.asset, d.attempts+1, m.before(d))
		}
		d.state, d.fence, d.attempt, d.lease, d.ahead = delivery.Delivering, c.Fence, c.Attempt, m.now.Add(r.Lease), r.Ahead
		if d.attempt > 1 {
			d.ahead = 0
		}
		if n := m.inFlight(d.sub); n > m.limit(d.sub, r.MaxInFlight) {
			return fmt.Errorf("%d in flight of %v", n, d.sub)
		}
	}
	return nil
}

func (m *model) limit(sub delivery.SubscriptionID, most int) int {
	if own := m.subs[sub].maxInFlight; own > 0 {
		return min(own, most)
	}
	return most
}

// before is the seq of the settled delivery before d in its stream.
func (m *model) before(d *modelDelivery) (seq int64) {
	for _, x := range m.deliveries {
		if x.sub == d.sub && x.asset == d.asset && x.seq < d.seq && !x.live() {
			seq = max(seq, x.seq)
		}
	}
	return seq
}

// exhausted checks that a claim of everything left nothing that could be claimed.
func (m *model) exhausted(most int) error {
	for _, d := range m.deliveries {
		if m.claimable(d) == nil && m.inFlight(d.sub) < m.limit(d.sub, most) {
			return fmt.Errorf("%d of %v, asset %q, could be claimed and was not", d.seq, d.sub, d.asset)
		}
	}
	return nil
}

// holds returns the delivery of a claim if its lease is the claimant's.
func (m *model) holds(c *delivery.Claim) *modelDelivery {
	d := m.deliveries[deliveryKey{c.Subscription, c.Seq}]
	if d != nil && d.state == delivery.Delivering && d.fence == c.Fence {
		return d
	}
	return nil
}

// leased returns the delivery at which the lease of a claim stands, if it is the claimant's.
func (m *model) leased(c *delivery.Claim) *modelDelivery {
	for _, d := range m.stream(c.Subscription, c.Asset) {
		if d.state == delivery.Delivering && d.fence == c.Fence {
			return d
		}
	}
	return nil
}

// settle takes over verdicts and says what becomes of each. Successes are first in what
// they do to their subscriptions.
func (m *model) settle(results []delivery.Result) []delivery.Settled {
	states := make([]delivery.Settled, len(results))
	died := map[*modelSub]int{}
	gone := map[*modelSub]bool{}
	for i := range results {
		r := &results[i]
		states[i] = delivery.SettledLost
		d := m.holds(r.Claim)
		if d == nil {
			continue
		}
		s := m.subs[d.sub]
		switch r.Verdict {
		case delivery.Succeeded:
			d.attempts = d.attempt
			d.tries++
			d.settle(delivery.Delivered, "")
			s.failures = 0
			states[i] = delivery.SettledDelivered
			if r.Next != nil {
				next := m.deliveries[deliveryKey{d.sub, r.Next.Seq}]
				next.state, next.fence, next.attempt, next.lease, next.ahead = delivery.Delivering, d.fence, 1, d.lease, d.ahead-1
			}
		case delivery.Failed:
			d.attempts = d.attempt
			d.tries++
			reason := "attempts used up: http_status"
			if r.Gone {
				reason = "the endpoint answered 410 Gone"
			}
			switch {
			case s.deleted:
				d.settle(delivery.Discarded, "subscription deleted")
				states[i] = delivery.SettledDiscarded
				continue
			case !r.Gone && d.attempt < s.maxAttempts:
				d.state, d.due = delivery.Pending, m.now.Add(max(r.Delay, time.Millisecond))
				states[i] = delivery.SettledPending
				continue
			}
			d.settle(delivery.Dead, reason)
			states[i] = delivery.SettledDead
			if s.onDead == delivery.Hold {
				d.held = true
				states[i] = delivery.SettledHeld
			}
			if !r.Blameless {
				died[s]++
				gone[s] = gone[s] || r.Gone
			}
		case delivery.Postponed:
			d.state, d.due = delivery.Pending, m.now.Add(max(r.Delay, time.Millisecond))
			states[i] = delivery.SettledPending
		default:
			d.state = delivery.Pending
			states[i] = delivery.SettledReleased
		}
	}
	for s, n := range died {
		s.failures += n
		if s.state == delivery.Active && (gone[s] || s.disableAfter > 0 && s.failures >= s.disableAfter) {
			s.state = delivery.Disabled
		}
	}
	return states
}

// reclaim takes back what ran out of its lease.
func (m *model) reclaim() map[deliveryKey]delivery.Settled {
	back := map[deliveryKey]delivery.Settled{}
	for k, d := range m.deliveries {
		if d.state != delivery.Delivering || d.lease.After(m.now) {
			continue
		}
		s := m.subs[d.sub]
		d.attempts = d.attempt
		d.tries++
		switch {
		case s.deleted:
			d.settle(delivery.Discarded, "subscription deleted")
			back[k] = delivery.SettledDiscarded
		case d.attempt < s.maxAttempts:
			d.state = delivery.Pending
			back[k] = delivery.SettledPending
		default:
			d.settle(delivery.Dead, "stalled")
			back[k] = delivery.SettledDead
			if s.onDead == delivery.Hold {
				d.held = true
				back[k] = delivery.SettledHeld
			}
		}
	}
	return back
}

// ripen lets what is due go on, and says how many, and in how long the next is due.
func (m *model) ripen() (n int64, next time.Duration) {
	next = math.MaxInt64
	for _, d := range m.deliveries {
		switch {
		case d.due.IsZero():
		case d.due.After(m.now):
			next = min(next, d.due.Sub(m.now))
		default:
			d.due = time.Time{}
			n++
		}
	}
	if next == math.MaxInt64 {
		next = -time.Millisecond
	}
	return n, next
}

// revive, discard and release are what an operator does; each says what is wrong with it.
func (m *model) revive(d *modelDelivery) error {
	switch {
	case m.subs[d.sub].deleted:
		return delivery.ErrNotFound
	case d.state != delivery.Dead:
		return delivery.ErrNotDead
	}
	d.settle(delivery.Pending, "")
	d.attempts = 0
	return nil
}

// behind returns what may be sent behind a delivery in flight.
func (m *model) behind(d *modelDelivery) []*modelDelivery {
	var list []*modelDelivery
	for _, x := range m.stream(d.sub, d.asset) {
		if x.seq > d.seq && len(list) < d.ahead {
			list = append(list, x)
		}
	}
	return list
}

// sentAhead reports whether a delivery may be sent under the lease of one before it.
func (m *model) sentAhead(d *modelDelivery) bool {
	for _, x := range m.stream(d.sub, d.asset) {
		if x.state == delivery.Delivering && d.live() && slices.Contains(m.behind(x), d) {
			return true
		}
	}
	return false
}

func (m *model) discard(d *modelDelivery, reason string) error {
	switch {
	case m.subs[d.sub].deleted:
		return delivery.ErrNotFound
	case d.state == delivery.Delivering || m.sentAhead(d):
		return delivery.ErrInFlight
	case d.state == delivery.Delivered, d.state == delivery.Discarded:
		return delivery.ErrNotDead
	}
	d.settle(delivery.Discarded, reason)
	return nil
}

func (m *model) release(d *modelDelivery) error {
	switch {
	case m.subs[d.sub].deleted:
		return delivery.ErrNotFound
	case !d.held:
		return delivery.ErrNotHeld
	}
	d.held = false
	return nil
}

// discardDeleted discards what deleted subscriptions have in streams that are not in flight.
func (m *model) discardDeleted() (n int64) {
	flying := map[streamOf]bool{}
	for _, d := range m.deliveries {
		if d.state == delivery.Delivering {
			flying[streamOf{d.sub, d.asset}] = true
		}
	}
	for _, d := range m.deliveries {
		if m.subs[d.sub].deleted && d.live() && !flying[streamOf{d.sub, d.asset}] {
			d.settle(delivery.Discarded, "subscription deleted")
			n++
		}
	}
	return n
}

// lines tells the whole state, a line a delivery and a subscription.
func (m *model) lines() []string {
	var lines []string
	for _, s := range m.subs {
		lines = append(lines, fmt.Sprintf("subscription %d %s failures %d deleted %v", int64(s.id), s.state, s.failures, s.deleted))
	}
	for _, d := range m.deliveries {
		line := fmt.Sprintf("%d of %d asset %q %s held %v attempts %d tries %d reason %q", d.seq, int64(d.sub), d.asset, d.state, d.held, d.attempts, d.tries, d.reason)
		if !d.due.IsZero() {
			line += " due " + d.due.UTC().Format(time.RFC3339Nano)
		}
		if d.state == delivery.Delivering {
			line += fmt.Sprintf(" attempt %d fence %d until %s", d.attempt, d.fence, d.lease.UTC().Format(time.RFC3339Nano))
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// sorted returns the deliveries in an order that does not depend on the run.
func (m *model) sorted() []*modelDelivery {
	return slices.SortedFunc(maps.Values(m.deliveries), func(a, b *modelDelivery) int {
		return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.sub, b.sub))
	})
}
