package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postlane-go/postlane/internal/torture/check"
	"github.com/postlane-go/postlane/internal/torture/journal"
)

// fault is a kind of fault. It is drawn as often as its weight says, for a time between
// the shortest and the longest.
type fault struct {
	kind              string
	weight            int
	shortest, longest time.Duration
	// run does it, and returns when it is over and what was broken works, or will.
	run func(r *run, ctx context.Context, target int, d time.Duration) error
}

const ms = time.Millisecond

// faults are all there are. Leases are of 4 s: what is longer lets them run out.
var faults []fault

func init() { // they refer to each other
	faults = []fault{
		{check.Kill, 8, 0, 3000 * ms, (*run).killWorker},
		{check.Freeze, 6, 1000 * ms, 9000 * ms, (*run).freezeWorker},
		{check.Stop, 5, 0, 1000 * ms, (*run).stopWorker},
		{check.ClockShift, 3, 2000 * ms, 8000 * ms, (*run).shiftClock},
		{check.PoolExhausted, 3, 500 * ms, 6000 * ms, (*run).exhaustPool},
		{check.Blackhole, 5, 500 * ms, 8000 * ms, (*run).swallow},
		{check.CutConnections, 6, 0, 0, (*run).cut},
		{check.Delay, 4, 1000 * ms, 5000 * ms, (*run).slow},
		{check.PostgresRestart, 2, 0, 0, (*run).restartPostgres},
		{check.PostgresCrash, 2, 0, 1000 * ms, (*run).crashPostgres},
		{check.Failover, 2, 0, 0, (*run).failover},
		{check.Terminate, 3, 0, 0, (*run).terminateBackends},
		{check.DiskFull, 1, 1000 * ms, 3000 * ms, (*run).fillDisk},
		{check.VacuumFull, 2, 0, 0, (*run).vacuumFull},
		{check.Reindex, 2, 0, 0, (*run).reindex},
		{check.ProducerKill, 3, 0, 1000 * ms, (*run).killProducer},
		{check.ReceiverAway, 3, 500 * ms, 4000 * ms, (*run).receiverAway},
		{check.ReceiverHang, 4, 1000 * ms, 10_000 * ms, (*run).receiverHang},
		{check.ReceiverReset, 3, 500 * ms, 3000 * ms, (*run).receiverReset},
		{check.ReceiverDrip, 3, 1000 * ms, 4000 * ms, (*run).receiverDrip},
		{check.ReceiverLate, 3, 1000 * ms, 5000 * ms, (*run).receiverLate},
		{check.ReceiverError, 4, 1000 * ms, 10_000 * ms, (*run).receiverError},
		{check.ReceiverFlaky, 4, 2000 * ms, 8000 * ms, (*run).receiverFlaky},
		{check.ReceiverGone, 2, 300 * ms, 2000 * ms, (*run).receiverGone},
		{check.SubscriptionStop, 4, 500 * ms, 6000 * ms, (*run).pauseSubscription},
		{check.SubscriptionNew, 3, 0, 0, (*run).replaceSubscription},
		{check.SecretRotate, 4, 0, 0, (*run).rotateSecret},
		{FreezeHung, 3, 4500 * ms, 8000 * ms, (*run).freezeHung},
	}
}

// FreezeHung is a freeze while an endpoint hangs, and is written down as both: when the
// process wakes up, others are at what it had open, and it must not touch that.
const FreezeHung = "freeze_hung"

// errSkipped is matched by the errors of faults that were not done.
var (
	errSkipped = errors.New("skipped")
	errBusy    = fmt.Errorf("%w: another fault is at work there", errSkipped)
	errNotHere = fmt.Errorf("%w: this machine or build does not allow it", errSkipped)
)

// during runs a fault and writes down when it was.
func (r *run) during(kind, target string, f func() error) error {
	began := journal.Now()
	err := f()
	return errors.Join(err, r.note(kind, target, began))
}

// note writes a fault down that ends now.
func (r *run) note(kind, target string, began int64) error {
	return r.journal.Write(journal.Line{Fault: &journal.Fault{Kind: kind, Target: target, Began: began, Ended: journal.Now()}})
}

// rest waits for d, or for ctx to end.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// perform does a planned fault.
func (r *run) perform(ctx context.Context, p planned) {
	for _, f := range faults {
		if f.kind != p.kind {
			continue
		}
		switch err := f.run(r, ctx, p.target, p.length); {
		case errors.Is(err, errSkipped):
			r.say("%-22s %v", p.kind, err)
		case err != nil:
			r.fail("%s: %w", p.kind, err)
		}
	}
}
