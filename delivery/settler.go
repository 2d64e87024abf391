package delivery

import (
	"context"
	"errors"
	"slices"
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
	batch = slices.DeleteFunc(batch, d.waits)
	fails := backoff{first: 20 * time.Millisecond, most: 2 * time.Second}
	for len(batch) > 0 {
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
			one.flight.refused.begin(one)
			d.refused.Go(func() { d.settleRefused(ctx, one.flight, err) })
			return
		}
		wait := fails.next()
		d.log.Error("recording attempts failed; trying again", "error", err, "attempts", len(batch), "wait", wait)
		if pause(ctx, wait) != nil {
			return
		}
	}
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
		} else {
			<-d.unsettled
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
	if s.Opened {
		d.tellOpened(r)
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
