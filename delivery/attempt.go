package delivery

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/postlane-go/postlane/delivery/sender"
)

// postponement is how long a delivery waits when something on this side stood in its
// way: long enough not to be a hot loop, short enough not to be noticed.
const postponement = 5 * time.Second

// start takes claims into flight, and reads what may follow them while they are sent. If
// their subscriptions cannot be read they are released.
func (d *Dispatcher) start(work context.Context, claims []Claim, claimed time.Time) error {
	answered := time.Now()
	targets, err := d.targets.of(work, claims)
	flights := make([]*flight, len(claims))
	for i := range claims {
		f := &flight{claim: claims[i], ahead: make(chan []Claim, 1), claimed: claimed, answered: answered, renewed: claimed}
		f.ctx, f.cancel = context.WithCancelCause(work) //nolint:fatcontext // each flight has one of its own, below work
		flights[i] = f
		d.flights.add(f)
		if err != nil {
			d.conclude(f, &f.claim, Result{Verdict: Released})
			continue
		}
		go d.deliver(f, targets[i])
	}
	if err != nil {
		return err
	}
	runs, err := d.readAhead(work, claims)
	for i, f := range flights {
		f.ahead <- runs[i]
	}
	return err
}

// aloneMany is after how many claims of which no delivery had another behind it only every
// aloneMany-th is looked behind.
const aloneMany = 8

// readAhead returns what may be sent behind each of the claims.
func (d *Dispatcher) readAhead(work context.Context, claims []Claim) ([][]Claim, error) {
	none := make([][]Claim, len(claims))
	if d.alone >= aloneMany && d.alone%aloneMany != 0 {
		d.alone++
		return none, nil
	}
	ctx, cancel := context.WithTimeout(work, d.config.Lease/2)
	defer cancel()
	runs, err := d.store.Ahead(ctx, claims, d.config.Ahead)
	if err != nil {
		return none, err
	}
	d.alone++
	for _, run := range runs {
		if len(run) > 0 {
			d.alone = 0
			break
		}
	}
	return runs, nil
}

// deliver makes the attempt, and those that may follow it in the stream while each
// succeeds, one after another, and hands their verdicts on.
func (d *Dispatcher) deliver(f *flight, t *target) {
	c := &f.claim
	var ahead []Claim
	for i := 0; c != nil; i++ {
		r := d.attempt(f, c, t)
		if i == 0 && r.Verdict == Succeeded {
			ahead = f.awaitAhead()
		}
		if i < len(ahead) && r.Verdict == Succeeded && d.goesOn(f) {
			r.Next = &ahead[i]
		}
		c = d.conclude(f, c, r)
	}
}

// goesOn reports whether a run may go on, and waits until the database has recorded
// enough of what was sent before. Not when the dispatcher stops or verdicts cannot be
// recorded: what is not recorded is sent again after a crash.
func (d *Dispatcher) goesOn(f *flight) bool {
	if time.Since(f.claimed) >= d.runFor() || d.flights.stopping() || d.behind.Load() || f.refused.any() {
		return false
	}
	select {
	case d.unsettled <- struct{}{}:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// runFor is how long after its claim a run of deliveries goes on: half of the time in
// which requests may start. It saves the claims of a fast endpoint, and lets a slow one's
// streams take turns. Much shorter, it ends the runs of an endpoint that takes 50 ms with
// most of what was read for them unsent.
func (d *Dispatcher) runFor() time.Duration { return d.startWithin() / 2 }

// attempt makes one attempt.
func (d *Dispatcher) attempt(f *flight, c *Claim, t *target) Result {
	if t.err != nil {
		d.log.Error("delivery postponed: its subscription cannot be sent to", "error", t.err, "subscription", c.Subscription, "delivery", c.ID())
		return Result{Verdict: Postponed, Delay: jittered(6 * postponement)}
	}
	payload, contentType := c.Payload, c.ContentType
	if t.thin || payload == nil && c.PayloadSize > 0 {
		read := d.store.Payload
		if t.thin {
			read, contentType = d.store.thin, DefaultContentType
		}
		var err error
		if payload, err = d.payload(f, c, read); err != nil && f.ctx.Err() == nil {
			d.log.Error("delivery postponed: its payload could not be read", "error", err, "subscription", c.Subscription, "delivery", c.ID())
			return Result{Verdict: Postponed, Delay: jittered(postponement)}
		}
	}
	if c.Wait > 0 {
		_ = pause(f.ctx, time.Until(f.answered.Add(c.Wait))) // what follows sees f.ctx end
	}
	if time.Since(f.claimed) > d.startWithin() || f.ctx.Err() != nil {
		return Result{Verdict: Released}
	}
	r := d.config.Sender.Send(f.ctx, sender.Request{
		URL: t.url, EventID: c.EventID, EventType: c.EventType, Asset: c.Asset, Attempt: c.Attempt,
		StreamSeq: c.Seq, StreamPrev: c.Prev, ContentType: contentType, Body: payload, Secrets: t.secrets, Keys: t.keys, Header: t.header,
		Traceparent: c.Traceparent,
	})
	return d.judge(c, &r)
}

// startWithin is how long after its claim a request may start. Whoever paused the
// subscription counts on it; and a process that was frozen must not begin with a lease
// that is about to end.
func (d *Dispatcher) startWithin() time.Duration {
	return min(startWithin, (d.config.Lease-d.config.Sender.Timeout())/2)
}

func (d *Dispatcher) payload(f *flight, c *Claim, read func(context.Context, *Claim) ([]byte, error)) ([]byte, error) {
	ctx, cancel := context.WithTimeout(f.ctx, startWithin)
	defer cancel()
	return read(ctx, c)
}

// judge turns what came of an attempt into a verdict.
func (d *Dispatcher) judge(c *Claim, r *sender.Result) Result {
	if r.Outcome == sender.Canceled {
		return Result{Verdict: Released}
	}
	result := Result{Verdict: Succeeded, Attempt: AttemptEvidence{
		Started: r.Started, Duration: r.Duration, Outcome: string(r.Outcome), Status: r.Status, Answered: r.Answered,
		Answer: r.Body, AnswerCut: r.BodyTruncated, Headers: headerLines(r.Header),
		DNS: r.Timing.DNS, Connect: r.Timing.Connect, TLS: r.Timing.TLS, FirstByte: r.Timing.FirstByte,
	}}
	if r.Err != nil {
		result.Attempt.Error = r.Err.Error()
	}
	switch {
	case r.Delivered():
	case r.Outcome == sender.LocalFailure:
		d.log.Warn("delivery postponed: no request could be made", "error", r.Err, "subscription", c.Subscription, "delivery", c.ID())
		return Result{Verdict: Postponed, Delay: jittered(postponement)}
	default:
		result.Verdict = Failed
		result.Gone = r.Gone()
		result.Blameless = r.OurFault()
		result.Unavailable, result.Asked = unavailable(r) && !d.config.NoBreaker, r.RetryAfter
		result.Delay = d.config.Schedule.Delay(c.Attempt, rand.Int64N, r.RetryAfter)
	}
	return result
}

// conclude hands a verdict to the settler and returns what the flight goes on with, if
// it does. With a lost lease there is nothing to say but that it is given back, if it is
// not lost after all: what was settled in a transaction whose outcome never arrived
// looks lost when it is tried again.
func (d *Dispatcher) conclude(f *flight, c *Claim, r Result) (next *Claim) {
	if errors.Is(context.Cause(f.ctx), ErrLeaseLost) {
		if r.Next != nil {
			<-d.unsettled
		}
		r = Result{Verdict: Released}
	}
	r.Claim = c
	if r.Next == nil {
		f.concluded.Store(true)
	}
	d.results <- settling{flight: f, result: r}
	return r.Next
}

// end forgets flights and nudges the claim. Whether anything waited for their slots is
// not known here: a limit counts the flights of all dispatchers, so one that found none
// free may hold the last of them, and its stream's next may be ready.
func (d *Dispatcher) end(fs ...*flight) {
	for _, f := range fs {
		f.cancel(nil)
	}
	d.flights.remove(fs...)
	d.poke()
}

func jittered(t time.Duration) time.Duration { return t - t/10 + rand.N(t/5) }

// headerLines writes headers as lines in the order of their names.
func headerLines(h http.Header) []byte {
	if len(h) == 0 {
		return nil
	}
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	var b bytes.Buffer
	for _, name := range names {
		for _, v := range h[name] {
			b.WriteString(name)
			b.WriteString(": ")
			b.WriteString(v)
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
