package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postlane-go/postlane/internal/pgerr"
	"github.com/postlane-go/postlane/internal/pooler"
	"github.com/postlane-go/postlane/internal/wake"
)

// Dispatcher claims deliveries, sends them and settles them. No connection to the
// database is held while an endpoint answers: an attempt is a claim, a request, and a
// settling, each of the first and last a short transaction shared with others.
//
//	wake ─▶ claim ─▶ one goroutine a stream: send, send… ─▶ settle, many at once
//	  ▲       │                                                │
//	  └───────┴───────── the stream's next is ready, a slot is free
//
// Order and the one in flight per stream are the claim's work; here there are only
// limits. Any number of dispatchers may run on one database, in any number of
// processes.
type Dispatcher struct {
	config  Config
	store   *Store
	log     *slog.Logger
	hub     *wake.Hub
	targets *targets
	flights *flights

	// results are verdicts on their way to be settled. It has room for the last of
	// every flight, so that none waits for the database to end, and for those for
	// which there is a place in unsettled.
	results chan settling
	// unsettled has an element for every verdict after which its flight went on. When
	// it is full, runs wait for the database: that bounds what is sent twice after a
	// crash.
	unsettled chan struct{}
	// refused are the verdicts that the database refuses, each tried on its own.
	refused sync.WaitGroup
	// nudge says that there may be something to claim.
	nudge chan struct{}
	// cursor is the subscription that had the last turn.
	cursor SubscriptionID
	// ripened and parked are when Ripen and Park last ran, and parkAfter is where Park
	// goes on.
	ripened, parked time.Time
	parkAfter       SubscriptionID
	// look is how long a claim looks for what it may take, unless the last pass was in
	// vain: what is there to take may lie further on, behind what can only wait.
	look   time.Duration
	inVain bool
	// alone counts the claims in a row of which no delivery had another behind it.
	alone int

	running atomic.Bool
	dormant atomic.Bool
	// behind: the last try to record verdicts failed.
	behind atomic.Bool
	// troubled is when the database last failed a claim or a renewal.
	troubled atomic.Pointer[time.Time]
}

// settling is a verdict and its flight, which ends with it unless it goes on.
type settling struct {
	flight *flight
	result Result
}

// New returns a dispatcher, or what is wrong with its configuration.
func New(config Config) (*Dispatcher, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Dispatcher{
		config:  config,
		store:   config.Store,
		log:     config.Logger.With("claimant", config.Claimant),
		targets: newTargets(config.Store),
		flights: newFlights(config.MaxInFlight),
		results: make(chan settling, 5*config.MaxInFlight), unsettled: make(chan struct{}, 4*config.MaxInFlight),
		nudge: make(chan struct{}, 1),
		look:  min(lookFor, config.Lease/4),
	}
	if !config.NoListen {
		if d.hub, err = wake.New(wake.Config{Conn: config.Listen, Logger: d.log}); err != nil {
			return nil, fmt.Errorf("delivery: %w", err)
		}
	}
	return d, nil
}

// Claimant returns the name under which it claims.
func (d *Dispatcher) Claimant() string { return d.config.Claimant }

// InFlight returns how many deliveries it has claimed and not yet settled.
func (d *Dispatcher) InFlight() int { return d.flights.count() }

// Dormant reports whether it waits for a first active subscription.
func (d *Dispatcher) Dormant() bool { return d.dormant.Load() }

// Listening reports whether wake-ups arrive at present; while they do not, it polls.
func (d *Dispatcher) Listening() bool { return d.hub.Listening() }

// recordWithin is how long releasing what was cut at the end of the grace may take.
const recordWithin = 5 * time.Second

// errStopping is the cause with which requests are cut at the end of the grace.
var errStopping = errors.New("delivery: the dispatcher is stopping")

// Run works until ctx ends and then stops: it claims nothing more, lets the requests
// that are open finish and be recorded within Config.Grace, and cuts and releases the
// rest without charging them. It returns nil then, or an error that names what could
// not be given back in time and waits for its lease to run out. A dispatcher runs once.
//
// Behind a pooler in transaction mode the Store's pool must prepare nothing that gets
// lost: Run returns an error at once that says what to set.
//
// A database that cannot be reached is waited for. Its faults are not the endpoints':
// they charge no attempt and count no failure.
func (d *Dispatcher) Run(ctx context.Context) error {
	if !d.running.CompareAndSwap(false, true) {
		return errors.New("delivery: a dispatcher runs once; make a new one")
	}
	if err := pooler.CheckStatements(ctx, d.store.pool); err != nil {
		return fmt.Errorf("delivery: %w", err)
	}
	// What is under way when ctx ends has to be finished without it.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()

	var background, settler sync.WaitGroup
	if d.hub != nil {
		background.Go(func() { d.hub.Run(ctx) })
	}
	upkeep, stopUpkeep := context.WithCancel(work)
	background.Go(func() { d.renewLoop(upkeep) })
	background.Go(func() { d.upkeepLoop(ctx) })
	settler.Go(func() { d.settleLoop(work) })

	d.log.Info("dispatcher started", "max_in_flight", d.config.MaxInFlight, "lease", d.config.Lease)
	d.claimLoop(ctx, work)

	empty := d.flights.close()
	grace := time.NewTimer(d.config.Grace)
	defer grace.Stop()
	select {
	case <-empty:
	case <-grace.C:
		d.log.Warn("grace is over; cutting open requests and releasing them", "in_flight", d.flights.count())
		d.flights.cancelAll(errStopping)
		// Recording is quick unless the database is away.
		last := time.NewTimer(recordWithin)
		defer last.Stop()
		select {
		case <-empty:
		case <-last.C:
		}
	}
	left := d.flights.count()
	stopUpkeep()
	cancel()
	settler.Wait()
	background.Wait()
	if left > 0 {
		return fmt.Errorf("delivery: %d deliveries could not be recorded in time; they are tried again when their leases (%v) end", left, d.config.Lease)
	}
	d.log.Info("dispatcher stopped")
	return nil
}

// claimLoop claims until ctx ends. It waits only when nothing may be claimed.
func (d *Dispatcher) claimLoop(ctx, work context.Context) {
	deliveries, cancelDeliveries := d.hub.Subscribe(wake.Delivery)
	defer cancelDeliveries()
	subscriptions, cancelSubscriptions := d.hub.Subscribe(wake.Subscription)
	defer cancelSubscriptions()

	var looked time.Time // when an active subscription was last seen
	woken := true        // something says that there is work
	fails := backoff{first: 50 * time.Millisecond, most: 5 * time.Second}
	for ctx.Err() == nil {
		wait := d.config.Poll
		var more bool
		var err error
		if time.Since(looked) > d.config.Poll*30 {
			var active bool
			if active, err = queries.SubscriptionAnyActive(ctx, d.store.pool); err == nil {
				d.dormant.Store(!active)
				if active {
					looked = time.Now()
				} else {
					wait *= 5
				}
			}
		}
		if err == nil && !d.dormant.Load() {
			next := time.Duration(-1)
			if !woken { // on the beat of Poll: it costs one statement to see that nothing waits
				woken, next, err = d.store.waiting(ctx)
			}
			if err == nil && woken {
				more, next, err = d.pass(ctx, work)
			}
			if err == nil && next >= 0 {
				wait = min(wait, next)
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			// Whatever may be there to claim waits for this.
			wait = fails.next()
			d.trouble()
			if pgerr.ReadOnly(err) {
				d.log.Warn("the database takes no writes: it is a standby, or set to be read only; waiting", "wait", wait)
			} else {
				d.log.Error("claiming failed; trying again", "error", err, "wait", wait)
			}
			_ = pause(ctx, wait) // the loop sees ctx end
			woken = true
			continue
		default:
			fails.reset()
		}
		if more {
			continue
		}
		// The jitter keeps dispatchers that started together from polling together.
		timer := time.NewTimer(wait + rand.N(wait/10+1))
		woken = true
		select {
		case <-timer.C:
			woken = false
		case <-d.nudge:
		case <-deliveries:
		case <-subscriptions:
			looked = time.Time{}
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// pass claims once and starts what it got. more says that another pass may find more
// at once; next is when a delivery's time comes (negative: none waits).
func (d *Dispatcher) pass(ctx, work context.Context) (more bool, next time.Duration, err error) {
	free := d.flights.free()
	if free <= 0 {
		return false, -1, nil // a freed slot nudges
	}
	want := min(free, d.config.Batch)
	before := time.Now()
	claims, err := d.claim(work, want)
	took := time.Since(before)
	if errors.Is(err, context.DeadlineExceeded) {
		// What it looked through in vain would be there again.
		tidy, cancel := context.WithTimeout(ctx, took)
		defer cancel()
		_, _, failed := d.tidy(tidy, false, took)
		return false, -1, errors.Join(err, failed)
	}
	if err != nil {
		return false, -1, err
	}
	if d.config.Observer.Claimed != nil {
		d.config.Observer.Claimed(len(claims), took)
	}
	if len(claims) > 0 {
		d.cursor = claims[len(claims)-1].Subscription
		if err := d.start(work, claims, before); err != nil {
			return false, -1, err
		}
	}
	full := len(claims) == want
	tidied, next, err := d.tidy(ctx, full, took)
	d.inVain = len(claims) == 0 && tidied == 0
	if err == nil {
		d.rest(ctx, full, time.Since(before))
	}
	return full || tidied > 0, next, err
}

// restMost bounds how long claims rest.
const restMost = 20 * time.Millisecond

// rest lets, while many are in flight, as much time pass after a claim as it took, unless
// there is room for many more: what becomes free and ready meanwhile is claimed together,
// and a claim costs by what it looks at more than by what it takes.
func (d *Dispatcher) rest(ctx context.Context, full bool, took time.Duration) {
	many := max(d.config.Batch/2, 1)
	if n := d.flights.count(); n >= many && (!full || d.config.MaxInFlight-n < many) {
		_ = pause(ctx, min(took, restMost)) // whoever asked sees ctx end
	}
}

// claim has a deadline of its own and outlives a stop: what the database has given must
// be known, to be given back.
func (d *Dispatcher) claim(work context.Context, want int) ([]Claim, error) {
	ctx, cancel := context.WithTimeout(work, d.config.Lease/2)
	defer cancel()
	look := d.look
	if d.inVain {
		look = 0
	}
	return d.store.Claim(ctx, ClaimRequest{
		Claimant: d.config.Claimant, Max: want, Ahead: max(d.config.Ahead, 0), MaxInFlight: d.config.MaxInFlightPerSubscription, Lease: d.config.Lease, After: d.cursor,
		Look: look, Wait: d.startWithin() / 2,
	})
}

// lookFor bounds Dispatcher.look.
const lookFor = 2 * time.Second

const (
	// ripenEvery is how often at least what is due is made ready, while claims find
	// as many as they want: a retry does not wait for the end of a backlog.
	ripenEvery = 100 * time.Millisecond
	// parkEvery is the same for what stands in a claim's way. A row that is moved is
	// written twice more, and a run ahead would have sent many of them.
	parkEvery = 2 * time.Second
)

// tidy makes ready what may be claimed next, and moves away what may not: after a claim
// that was full only now and then, and after another, where much is in the way, for as
// long as the claim took: the next looks through all that is left.
func (d *Dispatcher) tidy(ctx context.Context, full bool, took time.Duration) (changed int64, next time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.config.Lease)
	defer cancel()
	next = -1
	if !full || time.Since(d.ripened) >= ripenEvery {
		if changed, next, err = d.store.Ripen(ctx, 1000); err != nil {
			return 0, -1, err
		}
		d.ripened = time.Now()
	}
	if !full || time.Since(d.parked) >= parkEvery {
		window := parkWindow
		if full { // what a claim looks at will do
			window = d.config.MaxInFlightPerSubscription + claimOverscan
		}
		for began := time.Now(); ; {
			parked, last, err := d.store.park(ctx, d.parkAfter, d.config.MaxInFlightPerSubscription, window)
			if err != nil {
				return 0, -1, err
			}
			changed += parked
			if d.parkAfter = 0; parked == parkMax {
				d.parkAfter = last - 1 // there may be more of that one
			}
			if full || parked < parkMax || time.Since(began) >= took {
				break
			}
		}
		d.parked = time.Now()
	}
	return changed, next, nil
}

// trouble remembers that the database failed just now.
func (d *Dispatcher) trouble() {
	now := time.Now()
	d.troubled.Store(&now)
}

func (d *Dispatcher) poke() {
	select {
	case d.nudge <- struct{}{}:
	default:
	}
}

// backoff is how long to wait after failures in a row: twice as long each time, half of
// it drawn by lot.
type backoff struct {
	first, most, now time.Duration
}

func (b *backoff) next() time.Duration {
	b.now = min(max(b.now*2, b.first), b.most)
	return b.now/2 + rand.N(b.now/2+1)
}

func (b *backoff) reset() { b.now = 0 }
