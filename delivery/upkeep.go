package delivery

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/postlane-go/postlane/internal/pgerr"
)

// renewLoop renews what is in flight until work ends. It has a goroutine of its own, so
// that nothing slow can make leases run out.
func (d *Dispatcher) renewLoop(work context.Context) {
	tick := time.NewTicker(d.config.Lease / 6)
	defer tick.Stop()
	for {
		select {
		case <-work.Done():
			return
		case <-tick.C:
			d.renew(work)
		}
	}
}

// upkeepLoop reclaims what others left, first of all and then on its own beat, until
// ctx ends.
func (d *Dispatcher) upkeepLoop(ctx context.Context) {
	d.reclaim(ctx)
	orphans := orphanSearch{}
	for pause(ctx, d.config.Reclaim+rand.N(d.config.Reclaim/10+1)) == nil {
		d.reclaim(ctx)
		d.cleanUp(ctx, &orphans)
	}
}

// renew keeps the leases of what has been in flight for a while. A claim that is lost is
// cut: its request may already be another's.
func (d *Dispatcher) renew(work context.Context) {
	old := d.flights.stale(d.config.Lease / 3)
	if len(old) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(work, d.config.Lease/3)
	defer cancel()
	claims := make([]*Claim, len(old))
	byKey := make(map[claimKey]*flight, len(old))
	for i, f := range old {
		claims[i] = &f.claim
		byKey[f.key()] = f
	}
	at := time.Now()
	lost, err := d.store.Renew(ctx, claims, d.config.Lease)
	if err != nil {
		if work.Err() == nil {
			d.trouble()
			d.log.Error("renewing leases failed; trying again", "error", err, "leases", len(old))
		}
		return
	}
	d.flights.touch(old, at)
	cut := 0
	for _, c := range lost {
		f := byKey[claimKey{int64(c.Subscription), c.Seq, c.Fence}]
		if f.concluded.Load() { // and settled, while this ran
			continue
		}
		f.cancel(ErrLeaseLost)
		cut++
	}
	if cut > 0 {
		d.leasesLost(cut)
	}
}

// reclaim takes back what ran out of its lease, until there is no more. Not when the
// database was away a moment ago: leases have run out then because nobody could renew
// them, and whoever holds them is about to.
func (d *Dispatcher) reclaim(ctx context.Context) {
	const batch = 500
	if t := d.troubled.Load(); t != nil && time.Since(*t) < d.config.Lease/3 {
		return
	}
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, d.config.Lease)
		reclaimed, err := d.store.Reclaim(try, batch)
		cancel()
		if err != nil {
			if ctx.Err() == nil && !pgerr.ReadOnly(err) { // which claiming tells
				d.log.Error("reclaiming failed; trying again", "error", err)
			}
			return
		}
		if len(reclaimed) > 0 {
			d.log.Warn("reclaimed deliveries from claimants that went silent", "deliveries", len(reclaimed), "first_from", reclaimed[0].Claimant)
			if f := d.config.Observer.Reclaimed; f != nil {
				f(len(reclaimed))
			}
			d.poke()
		}
		if len(reclaimed) < batch {
			return
		}
	}
}

// orphanSearch is where the search for orphaned streams has got to, and when it began
// its last round.
type orphanSearch struct {
	from  streamPosition
	began time.Time
}

// orphanRound is how often all streams are looked at.
const orphanRound = time.Minute

// cleanUp does what nobody waits for: it discards what deleted subscriptions left,
// looks for streams that nothing would wake and for breakers that closed, and measures
// the oldest due.
func (d *Dispatcher) cleanUp(ctx context.Context, orphans *orphanSearch) {
	ctx, cancel := context.WithTimeout(ctx, d.config.Lease)
	defer cancel()
	fail := func(err error) {
		if ctx.Err() == nil {
			d.log.Error("upkeep failed; trying again", "error", err)
		}
	}
	if _, err := d.store.discardDeleted(ctx, 1000); err != nil {
		fail(err)
		return
	}
	if orphans.from != (streamPosition{}) || time.Since(orphans.began) > orphanRound {
		if orphans.from == (streamPosition{}) {
			orphans.began = time.Now()
		}
		next, woken, err := d.store.wakeOrphans(ctx, orphans.from, 1000)
		if err != nil {
			fail(err)
			return
		}
		orphans.from = next
		if woken > 0 {
			d.log.Error("woke streams that nothing would have woken; this is a bug, please report it", "streams", woken)
			d.poke()
		}
		if f := d.config.Observer.Orphans; f != nil {
			f(int(woken))
		}
	}
	if err := d.watchBreakers(ctx); err != nil {
		fail(err)
		return
	}
	if f := d.config.Observer.OldestDue; f != nil {
		age, err := d.store.OldestDue(ctx)
		if err != nil {
			fail(err)
			return
		}
		f(age)
	}
}
