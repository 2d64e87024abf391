package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// settleMax is how many verdicts are settled at once.
	settleMax = 500
	// settleTimeout bounds one try: a statement that waits longer is waiting for
	// something that is not going away.
	settleTimeout = 10 * time.Second
)

// settleLoop records verdicts until ctx ends: all that have come in while the last were
// being recorded, so that batches grow with the load and none waits for a timer.
func (d *Dispatcher) settleLoop(ctx context.Context) {
	batch := make([]settling, 0, settleMax)
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-d.results:
			batch = append(batch[:0], s)
		}
	fill:
		for len(batch) < settleMax {
			select {
			case s := <-d.results:
				batch = append(batch, s)
			default:
				break fill
			}
		}
		d.settle(ctx, batch)
	}
}

// settle records a batch, and does not give up before its leases have ended: what an
// endpoint has answered is known only here.
func (d *Dispatcher) settle(ctx context.Context, batch []settling) {
	results := make([]Result, len(batch))
	for i := range batch {
		results[i] = batch[i].result
	}
	fails := backoff{first: 20 * time.Millisecond, most: 2 * time.Second}
	for {
		settlements, woken, err := d.trySettle(ctx, results)
		if err == nil {
			d.settled(batch, settlements)
			if woken > 0 {
				d.poke()
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		if len(batch) > 1 && refusedRow(err) {
			// One of them cannot be recorded: find it, and let the others go.
			half := len(batch) / 2
			d.settle(ctx, batch[:half])
			d.settle(ctx, batch[half:])
			return
		}
		wait := fails.next()
		d.log.Error("recording attempts failed; trying again", "error", err, "attempts", len(batch), "wait", wait)
		if batch, results = d.dropExpired(batch, results); len(batch) == 0 {
			return
		}
		if pause(ctx, wait) != nil {
			return
		}
	}
}

func (d *Dispatcher) trySettle(ctx context.Context, results []Result) ([]Settlement, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return d.store.settle(ctx, results)
}

// dropExpired gives up verdicts whose lease has ended: another dispatcher has the
// delivery by now, or will.
func (d *Dispatcher) dropExpired(batch []settling, results []Result) ([]settling, []Result) {
	keptBatch, keptResults := batch[:0:0], results[:0:0]
	for i := range batch {
		if time.Since(d.flights.renewed(batch[i].flight)) > d.config.Lease {
			c := &batch[i].flight.claim
			d.log.Error("an attempt could not be recorded before its lease ended; it may be sent again", "subscription", c.Subscription, "delivery", c.ID(), "attempt", c.Attempt)
			d.end(batch[i].flight)
			continue
		}
		keptBatch = append(keptBatch, batch[i])
		keptResults = append(keptResults, results[i])
	}
	return keptBatch, keptResults
}

// settled tells of settlements and ends their flights.
func (d *Dispatcher) settled(batch []settling, settlements []Settlement) {
	lost := 0
	flights := make([]*flight, len(batch))
	for i, s := range settlements {
		flights[i] = batch[i].flight
		d.tell(&batch[i].result, s)
		if s.State == SettledLost {
			lost++
		}
	}
	if lost > 0 {
		d.leasesLost(lost)
	}
	d.end(flights...)
}

func (d *Dispatcher) tell(r *Result, s Settlement) {
	c := r.Claim
	if f := d.config.Observer.Settled; f != nil {
		f(Observation{
			Subscription: c.Subscription, EventType: c.EventType, Outcome: r.Attempt.Outcome, Status: r.Attempt.Status,
			Duration: r.Attempt.Duration, State: s.State,
		})
	}
	switch s.State {
	case SettledDead, SettledHeld:
		d.log.Warn("delivery is dead", "subscription", c.Subscription, "delivery", c.ID(), "event", c.EventID, "attempts", c.Attempt,
			"outcome", r.Attempt.Outcome, "status", r.Attempt.Status, "held", s.State == SettledHeld)
	case SettledPending:
		d.log.Debug("attempt failed", "subscription", c.Subscription, "delivery", c.ID(), "attempt", c.Attempt,
			"outcome", r.Attempt.Outcome, "status", r.Attempt.Status, "next_in", r.Delay)
	}
	if s.Disabled != "" {
		d.log.Warn("subscription disabled", "subscription", c.Subscription, "reason", s.Disabled)
		if f := d.config.Observer.Disabled; f != nil {
			f(c.Subscription, s.Disabled)
		}
	}
}

func (d *Dispatcher) leasesLost(n int) {
	d.log.Warn("leases lost: the deliveries went to another claimant, or were settled before", "deliveries", n)
	if f := d.config.Observer.LeasesLost; f != nil {
		f(n)
	}
}

// refusedRow reports whether the database refused what was written, as opposed to being
// away, busy or undecided.
func refusedRow(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) < 2 {
		return false
	}
	switch pg.Code[:2] {
	case "08", "25", "40", "53", "55", "57", "58":
		return false // connection, transaction state, rollback, resources, locks, operator, system
	}
	return true
}
