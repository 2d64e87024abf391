package delivery

import (
	"context"
	"math/rand/v2"
	"time"
)

// upkeepLoop reclaims what others left, first of all and then on its own beat, and
// renews what is in flight here, until work ends. Reclaiming ends with ctx.
func (d *Dispatcher) upkeepLoop(ctx, work context.Context) {
	renewEvery := d.config.Lease / 6
	renewal := time.NewTicker(renewEvery)
	defer renewal.Stop()
	d.reclaim(ctx)
	reclaim := time.NewTimer(d.config.Reclaim)
	defer reclaim.Stop()
	orphans := orphanSearch{}
	for {
		select {
		case <-work.Done():
			return
		case <-renewal.C:
			d.renew(work)
		case <-reclaim.C:
			if ctx.Err() == nil {
				d.reclaim(ctx)
				d.cleanUp(ctx, &orphans)
			}
			reclaim.Reset(d.config.Reclaim + rand.N(d.config.Reclaim/10+1))
		}
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
	byKey := make(map[leaseKey]*flight, len(old))
	for i, f := range old {
		claims[i] = &f.claim
		byKey[f.key()] = f
	}
	at := time.Now()
	lost, err := d.store.Renew(ctx, claims, d.config.Lease)
	if err != nil {
		if work.Err() == nil {
			d.log.Error("renewing leases failed; trying again", "error", err, "leases", len(old))
		}
		return
	}
	d.flights.touch(old, at)
	cut := 0
	for _, c := range lost {
		f := byKey[leaseKey{int64(c.Subscription), c.Seq, c.Fence}]
		select {
		case <-f.ctx.Done(): // settled while this ran
		default:
			f.cancel(ErrLeaseLost)
			cut++
		}
	}
	if cut > 0 {
		d.leasesLost(cut)
	}
}

// reclaim takes back what ran out of its lease, until there is no more.
func (d *Dispatcher) reclaim(ctx context.Context) {
	const batch = 500
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, d.config.Lease)
		reclaimed, err := d.store.Reclaim(try, batch)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
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
// looks for streams that nothing would wake, and measures the oldest due.
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
	if f := d.config.Observer.OldestDue; f != nil {
		age, err := d.store.OldestDue(ctx)
		if err != nil {
			fail(err)
			return
		}
		f(age)
	}
}
