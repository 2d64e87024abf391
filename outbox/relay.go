package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postlane-go/postlane/internal/pooler"
	"github.com/postlane-go/postlane/internal/wake"
)

// Relay takes staged messages from a store to a publisher. Any number of
// processes may run one on the same store.
//
// Each queue's part of a claim is published by a goroutine of its own, message by
// message. A publish that fails ends the part, and the rest of it is handed back
// at once; other queues go on. Leases are renewed for as long as publishing takes.
type Relay struct {
	config  RelayConfig
	hub     *wake.Hub
	marks   marker
	counts  counts
	running sync.WaitGroup // the parts that are being published
	ended   chan struct{}  // a part has ended; of capacity 1

	stopping context.Context // ends with Stop
	stop     context.CancelFunc
	stopped  chan struct{} // closed when Run has ended

	mu       sync.Mutex
	state    relayState
	parts    map[*part]struct{}
	inFlight int
	failing  bool // the store's last answer was an error, and the log knows
}

type relayState int

const (
	relayNew     relayState = iota
	relayRunning            // or has run
	relayDone               // stopped before it ran
)

// counts are what Stats reports.
type counts struct{ published, failed, parked, released, lost, storeErrors atomic.Int64 }

// Stats counts what a relay has done since it was made.
type Stats struct {
	// Published messages, of which the store knows that they were.
	Published int64
	// Failed attempts.
	Failed int64
	// Parked messages, after such an attempt.
	Parked int64
	// Released messages: handed back behind a failed one, or when stopping.
	Released int64
	// Lost claims: another relay took over, since this one was too slow or cut off.
	Lost int64
	// StoreErrors are calls of the store that failed.
	StoreErrors int64
}

// NewRelay returns a relay. It does nothing until Run or Tick.
func NewRelay(config RelayConfig) (*Relay, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Relay{
		config: config, ended: make(chan struct{}, 1), stopped: make(chan struct{}), parts: map[*part]struct{}{},
	}
	r.stopping, r.stop = context.WithCancel(context.Background())
	r.marks.mark = config.Store.MarkPublished
	if config.Listen != nil {
		if r.hub, err = wake.New(wake.Config{Conn: config.Listen.Copy(), Logger: config.Logger}); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Pending counts what is not published: see Backlog.
func (r *Relay) Pending(ctx context.Context) (Backlog, error) { return r.config.Store.Pending(ctx) }

// Stats counts what the relay has done.
func (r *Relay) Stats() Stats {
	c := &r.counts
	return Stats{
		Published: c.published.Load(), Failed: c.failed.Load(), Parked: c.parked.Load(),
		Released: c.released.Load(), Lost: c.lost.Load(), StoreErrors: c.storeErrors.Load(),
	}
}

// Tick makes one pass: one claim, all of it published, failed or handed back. It
// returns how many messages were published. It is for tests and tools; a Relay that
// runs needs none.
func (r *Relay) Tick(ctx context.Context) (published int, err error) {
	before := r.counts.published.Load()
	renewing := r.renewing()
	defer renewing()
	_, err = r.pass(ctx, r.config.Batch)
	r.running.Wait()
	return int(r.counts.published.Load() - before), err
}

// Run relays until ctx ends or Stop is called, and returns nil when the pass in
// flight has ended: what was being published has been, and the rest of it is handed
// back. A second Run is ErrRunning; one after Stop does nothing. Behind a pooler in
// transaction mode the store's pool must prepare nothing that gets lost: Run returns an
// error at once that says what to set.
func (r *Relay) Run(ctx context.Context) error {
	if run, err := r.start(); !run {
		return err
	}
	defer close(r.stopped)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.stopping, cancel)()
	if store, ok := r.config.Store.(*Postgres); ok {
		if err := pooler.CheckStatements(ctx, store.pool); err != nil {
			return fmt.Errorf("outbox: %w", err)
		}
	}

	signals, unsubscribe := r.hub.Subscribe(wake.Message)
	defer unsubscribe()
	if r.hub != nil {
		var listening sync.WaitGroup
		listening.Go(func() { r.hub.Run(ctx) })
		defer listening.Wait()
	} else if r.config.Wake != nil {
		signals = r.config.Wake
	}
	renewing := r.renewing()
	defer renewing()
	defer r.running.Wait()
	r.loop(ctx, signals)
	return nil
}

// start says whether Run is to go on.
func (r *Relay) start() (run bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.state {
	case relayRunning:
		return false, ErrRunning
	case relayDone:
		return false, nil
	}
	r.state = relayRunning
	return true, nil
}

// Stop ends Run and waits for it: for the messages that are being published, which
// PublishTimeout bounds. It may be called any number of times, from anywhere, and
// before Run, which then does nothing.
func (r *Relay) Stop() {
	r.mu.Lock()
	r.stop()
	if r.state == relayNew {
		r.state = relayDone
		close(r.stopped)
	}
	r.mu.Unlock()
	<-r.stopped
}

// loop claims as long as there is something and room for it, and waits otherwise.
func (r *Relay) loop(ctx context.Context, signals <-chan struct{}) {
	for ctx.Err() == nil {
		claimed := 0
		var err error
		if room := r.room(); room > 0 {
			claimed, err = r.pass(ctx, room)
		}
		switch {
		case err != nil:
			r.wait(ctx, nil, nil) // and not for signals, which come as fast as messages are staged
		case claimed == 0:
			r.wait(ctx, signals, r.ended)
		}
	}
}

// wait returns after a poll interval, or earlier by a signal.
func (r *Relay) wait(ctx context.Context, signals, ended <-chan struct{}) {
	poll := r.config.Poll
	timer := time.NewTimer(poll - poll/10 + rand.N(poll/5+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-signals:
	case <-ended:
	case <-timer.C:
	}
}

// room is how many messages may be claimed.
func (r *Relay) room() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(r.config.Batch, r.config.MaxInFlight-r.inFlight)
}

// pass claims up to limit messages, has each queue's part of them published, and
// does not wait for that. A claim is not given up halfway when ctx ends, since
// what it took would be nobody's until the lease ends.
func (r *Relay) pass(ctx context.Context, limit int) (claimed int, err error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	began := time.Now()
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	claims, err := r.config.Store.Claim(within, limit)
	r.storeAnswered(err)
	if err != nil {
		return 0, err
	}
	for len(claims) > 0 {
		n := 1
		for n < len(claims) && claims[n].Queue == claims[0].Queue {
			n++
		}
		p := r.newPart(claims[:n:n], began)
		r.running.Go(func() { defer r.endPart(p); p.run(ctx) })
		claims, claimed = claims[n:], claimed+n
	}
	return claimed, nil
}

// storeAnswered keeps the log to one line for each time that the store stops or
// starts to answer.
func (r *Relay) storeAnswered(err error) {
	if err != nil {
		r.counts.storeErrors.Add(1)
	}
	r.mu.Lock()
	changed := r.failing != (err != nil)
	r.failing = err != nil
	r.mu.Unlock()
	switch {
	case changed && err != nil:
		r.config.Logger.Error("outbox: the store does not answer; the relay goes on trying", "error", err)
	case changed:
		r.config.Logger.Info("outbox: the store answers again")
	}
}
