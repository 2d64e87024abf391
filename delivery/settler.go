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
	// refusedLeases is for how many leases a verdict is kept that the database
	// refuses to record.
	refusedLeases = 4
)

// settleLoop records verdicts until ctx ends: all that have come in while the last were
// being recorded, so that batches grow with the load and none waits for a timer.
func (d *Dispatcher) settleLoop(ctx context.Context) {
	defer d.refused.Wait()
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

// settle records a batch, and does not give up while the dispatcher runs: what an
// endpoint has answered is known only here, and the fence decides whether it still
// counts.
func (d *Dispatcher) settle(ctx context.Context, batch []settling) {
	fails := backoff{first: 20 * time.Millisecond, most: 2 * time.Second}
	for {
		err := d.trySettle(ctx, batch)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case refusedRow(err) && len(batch) > 1:
			// One of them cannot be recorded: find it, and let the others go.
			half := len(batch) / 2
			d.settle(ctx, batch[:half])
			d.settle(ctx, batch[half:])
			return
		case refusedRow(err):
			one := batch[0]
			if one.result.Next != nil { // nothing behind it can be recorded before it is
				one.result.Next = nil
				one.flight.cancel(ErrLeaseLost)
			}
			d.refused.Go(func() { d.settleRefused(ctx, one, err) })
			return
		}
		wait := fails.next()
		d.log.Error("recording attempts failed; trying again", "error", err, "attempts", len(batch), "wait", wait)
		if pause(ctx, wait) != nil {
			return
		}
	}
}

// settleRefused goes on trying to record a verdict that the database refuses, beside the
// others. After refusedLeases it lets go: the lease runs out, the attempt is recorded
// as stalled, and what cannot be recorded ends as a dead letter instead of holding its
// stream for ever.
func (d *Dispatcher) settleRefused(ctx context.Context, s settling, err error) {
	c := &s.flight.claim
	fails := backoff{first: 50 * time.Millisecond, most: 2 * time.Second}
	for began := time.Now(); time.Since(began) < refusedLeases*d.config.Lease; {
		wait := fails.next()
		d.log.Error("the database refuses to record an attempt; trying again", "error", err,
			"subscription", c.Subscription, "delivery", c.ID(), "attempt", c.Attempt, "wait", wait)
		if pause(ctx, wait) != nil {
			return
		}
		if err = d.trySettle(ctx, []settling{s}); err == nil || ctx.Err() != nil {
			return
		}
	}
	d.log.Error("an attempt could not be recorded; its delivery is sent again or dead when its lease ends", "error", err,
		"subscription", c.Subscription, "delivery", c.ID(), "attempt", c.Attempt)
	d.end(s.flight)
}

// trySettle records a batch, and tells of it.
func (d *Dispatcher) trySettle(ctx context.Context, batch []settling) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	results := make([]Result, len(batch))
	for i := range batch {
		results[i] = batch[i].result
	}
	settlements, err := d.store.Settle(ctx, results)
	d.behind.Store(err != nil)
	if err != nil {
		return err
	}
	d.settled(batch, settlements)
	return nil
}

// settled tells of settlements, ends the flights that they end, and cuts those that
// went on with a lease that is lost.
func (d *Dispatcher) settled(batch []settling, settlements []Settlement) {
	lost := 0
	ended := make([]*flight, 0, len(batch))
	for i, s := range settlements {
		f, r := batch[i].flight, &batch[i].result
		d.tell(r, s)
		if s.State == SettledLost && r.Verdict != Released {
			lost++
			f.cancel(ErrLeaseLost)
		}
		if r.Next == nil {
			ended = append(ended, f)
		}
	}
	if lost > 0 {
		d.leasesLost(lost)
	}
	if len(ended) > 0 {
		d.end(ended...)
	}
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
// away, busy, undecided or not set up.
func refusedRow(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) < 2 {
		return false
	}
	switch pg.Code[:2] {
	case "21", "22", "23", "27", "44", "54", "P0", "XX":
		return true // cardinality, data, constraints, triggers, check options, limits, PL/pgSQL, internal
	}
	return false
}
