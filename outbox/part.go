package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// storeTimeout is how long a call of the store may take.
	storeTimeout = 10 * time.Second
	// markEvery is how long a published message may be unknown to the store while
	// its part goes on: what a crash has published again.
	markEvery = 50 * time.Millisecond
)

// part is what one claim has of one queue, on its way to the publisher.
type part struct {
	relay  *Relay
	claims []Claim

	ctx    context.Context // ends when the lease is lost
	cancel context.CancelCauseFunc

	unmarked []Claim // published, and the store does not know
	marked   time.Time

	mu        sync.Mutex
	until     time.Time   // the lease ends no earlier, by the process's monotonic clock
	expiry    *time.Timer // at until
	finishing bool        // the last write is on its way: the lease is being given up
}

// newPart takes claims that were asked for at began into flight.
func (r *Relay) newPart(claims []Claim, began time.Time) *part {
	p := &part{relay: r, claims: claims, marked: began, until: began.Add(r.config.Store.Lease())}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.mu.Lock() // the timer may be early
	p.expiry = time.AfterFunc(time.Until(p.until), p.expire)
	p.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts[p] = struct{}{}
	r.inFlight += len(claims)
	return p
}

// endPart takes p out of flight.
func (r *Relay) endPart(p *part) {
	p.finish()
	p.expiry.Stop()
	p.cancel(nil)
	r.mu.Lock()
	delete(r.parts, p)
	r.inFlight -= len(p.claims)
	r.mu.Unlock()
	select {
	case r.ended <- struct{}{}:
	default:
	}
}

// run publishes the part, until it is through, a message fails, the lease is lost
// or stop ends.
func (p *part) run(stop context.Context) {
	rest := p.claims
	for len(rest) > 0 {
		if stop.Err() != nil {
			p.release(rest)
			return
		}
		n, err := p.publish(rest)
		p.unmarked = append(p.unmarked, rest[:n]...)
		rest = rest[n:]
		switch {
		case p.ctx.Err() != nil:
			p.giveUp(rest)
			return
		case err != nil:
			if parked := p.fail(rest[0], err, len(rest) == 1); !parked {
				p.release(rest[1:])
				return
			}
			rest = rest[1:]
		case len(rest) > 0 && time.Since(p.marked) >= markEvery:
			p.mark()
		}
	}
	p.finish()
	p.mark()
}

// publish hands over the first of claims, or several, and returns how many are
// published; err is about the next one.
func (p *part) publish(claims []Claim) (published int, err error) {
	c := &p.relay.config
	first := claims[0]
	p.expire() // a process that was stopped for a while is here before its timers are
	switch {
	case p.ctx.Err() != nil:
		return 0, context.Cause(p.ctx)
	case first.Damage != nil:
		return 0, first.Damage
	case c.Exhausted == Park && first.Attempt > first.MaxAttempts:
		// The last attempt ended with its claimant, as of a message that kills it.
		return 0, Permanent(errors.New("stalled on the last attempt"))
	}
	ctx, cancel := context.WithTimeout(p.ctx, c.PublishTimeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			published, err = 0, fmt.Errorf("the publisher panicked: %v", r)
		}
	}()
	batch, ok := c.Publisher.(BatchPublisher)
	if !ok {
		if err := c.Publisher.Publish(ctx, first.Message); err != nil {
			return 0, err
		}
		return 1, nil
	}
	var messages []Message
	for _, claim := range claims {
		if claim.Damage != nil || c.Exhausted == Park && claim.Attempt > claim.MaxAttempts {
			break
		}
		messages = append(messages, claim.Message)
	}
	published, err = batch.PublishBatch(ctx, messages)
	if published < 0 || published > len(messages) || (published == len(messages)) != (err == nil) {
		return 0, fmt.Errorf("the publisher is broken: it says that it has published %d of %d messages, with the error %w", published, len(messages), orNone(err))
	}
	return published, err
}

func orNone(err error) error {
	if err == nil {
		return errors.New("none")
	}
	return err
}

// mark tells the store what was published.
func (p *part) mark() {
	if len(p.unmarked) == 0 {
		return
	}
	claims := p.unmarked
	p.unmarked, p.marked = nil, time.Now()
	err := p.persist(func(ctx context.Context) error { return p.relay.marks.do(ctx, claims) })
	p.count(&p.relay.counts.published, claims, err)
}

// release hands claims back, after marking what was published before them.
func (p *part) release(claims []Claim) {
	p.finish()
	p.mark()
	if len(claims) == 0 {
		return
	}
	err := p.persist(func(ctx context.Context) error { return p.relay.config.Store.Release(ctx, claims...) })
	p.count(&p.relay.counts.released, claims, err)
}

// fail settles a failed attempt, after marking what was published before it, and
// says whether the message was parked.
func (p *part) fail(claim Claim, cause error, last bool) (parked bool) {
	c := &p.relay.config
	f := Failure{Claim: claim, Error: cause.Error()}
	used := claim.Attempt >= claim.MaxAttempts || errors.Is(cause, ErrPermanent)
	if f.Park = used && c.Exhausted == Park; !f.Park {
		f.Delay = c.Backoff(claim.Attempt)
	}
	if last || !f.Park {
		p.finish()
	}
	p.mark()
	err := p.persist(func(ctx context.Context) error { return c.Store.Fail(ctx, f) })
	p.count(&p.relay.counts.failed, []Claim{claim}, err)
	if err == nil && f.Park {
		p.relay.counts.parked.Add(1)
	}
	c.Logger.Warn("outbox: a message was not published", "message", claim.ID, "queue", claim.Queue, "topic", claim.Topic,
		"attempt", claim.Attempt, "parked", f.Park, "again_in", f.Delay, "error", errorText(f.Error))
	return f.Park && err == nil
}

// giveUp ends a part whose lease is lost. What it has published it still tells, in
// case nobody has taken over yet; the rest is another relay's.
func (p *part) giveUp(rest []Claim) {
	p.finish()
	p.mark()
	p.relay.counts.lost.Add(int64(len(rest)))
	p.relay.config.Logger.Warn("outbox: a lease was lost; another relay goes on with the queue", "queue", p.claims[0].Queue, "messages", len(rest))
}

// persist writes to the store, again and again for as long as the lease lasts.
func (p *part) persist(write func(context.Context) error) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		err := write(ctx)
		cancel()
		if err == nil || errors.Is(err, ErrLeaseLost) {
			p.relay.storeAnswered(nil)
			return err
		}
		p.relay.storeAnswered(err)
		if time.Now().Add(pause).After(p.leaseEnd()) {
			return err
		}
		time.Sleep(pause)
	}
}

// count counts what a write has done for claims.
func (p *part) count(counter interface{ Add(int64) int64 }, claims []Claim, err error) {
	lost := len(lostOf(err))
	if lost == 0 && err != nil {
		lost = len(claims) // whether it was written nobody knows; it will be done again
	}
	counter.Add(int64(len(claims) - lost))
	p.relay.counts.lost.Add(int64(lost))
}

func (p *part) leaseEnd() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until
}

// finish says that the lease is being given up: an answer that it is lost means
// nothing from here on, also to a renewal that is on its way.
func (p *part) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finishing = true
}

// renewed moves the end of the lease.
func (p *part) renewed(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = until
	p.expiry.Reset(time.Until(until))
}

// lose ends the part, unless it is ending by itself.
func (p *part) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.finishing {
		p.cancel(ErrLeaseLost)
	}
}

// expire is called when the lease may have ended without a renewal.
func (p *part) expire() {
	if !time.Now().Before(p.leaseEnd()) {
		p.lose()
	}
}
