package delivery

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// Verdict is what a claimant says of a claim.
type Verdict int

const (
	// Succeeded: the endpoint took the event.
	Succeeded Verdict = iota + 1
	// Failed: it did not. The attempt is charged, and the delivery waits for its
	// next attempt or is dead.
	Failed
	// Postponed: something on this side stood in the way. The attempt is not
	// charged, and the delivery waits for Delay.
	Postponed
	// Released: the claim is given back, uncharged, and may be claimed at once.
	Released
)

// Result is a verdict on a claim, with what is to be remembered of the attempt.
type Result struct {
	Claim   *Claim
	Verdict Verdict

	// Delay is how long the delivery waits, where it is Failed with attempts left or
	// Postponed.
	Delay time.Duration
	// Gone says that a Failed attempt was answered with 410: the delivery is dead
	// and its subscription is disabled.
	Gone bool
	// Blameless says that a Failed attempt's fault was not the endpoint's: if the
	// delivery dies of it, its subscription's failures are not counted.
	Blameless bool

	// Unavailable says that a Failed attempt found no endpoint, or one that asks for less;
	// Asked is for how long it asked to be left alone (Retry-After), 0 if it did not. See
	// Breaker.
	Unavailable bool
	Asked       time.Duration

	// Next is the delivery (of Store.Ahead) with which the claimant goes on, after a
	// success: the lease stays, and stands there. Left nil, the lease ends.
	Next *Claim

	// Attempt is remembered with Succeeded and Failed.
	Attempt AttemptEvidence
}

// AttemptEvidence is what is kept of a request. The bytes may be any.
type AttemptEvidence struct {
	Started  time.Time
	Duration time.Duration
	// Outcome is a short stable word; see sender.Outcome.
	Outcome string
	// Status is the answer's, where Answered.
	Status   int
	Answered bool
	// Answer is the beginning of the answer's body, and AnswerCut whether there
	// was more. Headers are the answer's, as lines.
	Answer    []byte
	AnswerCut bool
	Headers   []byte
	// Error is for operators only.
	Error string
	// DNS, Connect, TLS and FirstByte are how long the parts took; 0 where they
	// did not happen.
	DNS, Connect, TLS, FirstByte time.Duration
}

// Settled is what a verdict did.
type Settled string

const (
	SettledDelivered Settled = "delivered" // out of its stream
	SettledPending   Settled = "pending"   // waits for its next attempt
	SettledHeld      Settled = "held"      // dead, and holds its stream
	SettledDead      Settled = "dead"      // out of its stream
	SettledDiscarded Settled = "discarded" // its subscription was deleted
	SettledReleased  Settled = "released"  // pending, as before the claim
	SettledLost      Settled = "lost"      // nothing: the lease was lost
)

// Settlement is what became of a Result.
type Settlement struct {
	State Settled
	// Disabled is why the subscription was disabled by it; "" if it was not. Of
	// several in one call that did it together, one says so.
	Disabled string
	// Opened says that the subscription's Breaker was opened by it. Of several in one
	// call that did it together, one says so.
	Opened bool
}

// Err is ErrLeaseLost where the lease was lost.
func (s Settlement) Err() error {
	if s.State == SettledLost {
		return ErrLeaseLost
	}
	return nil
}

// Settle records verdicts, each under its own fence, in one transaction and one round
// trip. The answer is parallel to results. A verdict whose lease is lost changes
// nothing (SettledLost) and takes nothing from the others. With an error none is
// recorded, and all may be tried again. Of a stream several may be settled together, in
// its order; one whose predecessor in the run has not been settled is SettledLost.
func (s *Store) Settle(ctx context.Context, results []Result) ([]Settlement, error) {
	if len(results) == 0 {
		return nil, nil
	}
	batch := newSettleBatch(results)
	if err := s.pipeline(ctx, func(b *pgx.Batch) { batch.queue(b, s.now()) }); err != nil {
		return nil, fmt.Errorf("delivery: settle: %w", err)
	}
	return batch.settlements, nil
}

// SettleTx is Settle in the caller's transaction: what the caller writes and what it
// says of its claims commit together. The transaction must be read committed. Look at
// every settlement: one that is SettledLost did not happen.
func (s *Store) SettleTx(ctx context.Context, tx pgx.Tx, results []Result) ([]Settlement, error) {
	if len(results) == 0 {
		return nil, nil
	}
	batch := newSettleBatch(results)
	b := &pgx.Batch{}
	batch.queue(b, s.now())
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("delivery: settle: %w", err)
	}
	return batch.settlements, nil
}

// claimKey names a claimed delivery.
type claimKey struct{ subscription, seq, fence int64 }

// run is what is settled together of a stream.
type run struct {
	from  int64 // the delivery at which the lease stands
	count int32 // how many results there are
	last  int   // the last of them
}

// settleBatch sorts results into the statements that record them.
type settleBatch struct {
	results     []Result
	settlements []Settlement
	index       map[claimKey]int
	runs        map[streamKey]*run

	succeeded evidenceArrays
	failed    evidenceArrays
	attempts  []int32 // of failed, beyond any limit where it is gone
	gone      []bool
	blameless []bool
	delays    []int64
	strikes   strikes
	postponed claimArrays
	postpone  []int64
	// ended are the leases that end, and advanced those that go on, by counts, to
	// nexts.
	ended, advanced claimArrays
	counts          []int32
	nexts           []int64
	nextEvents      []string
}

func newSettleBatch(results []Result) *settleBatch {
	b := &settleBatch{
		results: results, settlements: make([]Settlement, len(results)),
		index: make(map[claimKey]int, len(results)), runs: make(map[streamKey]*run, len(results)),
	}
	for i := range results {
		r := &results[i]
		c := r.Claim
		b.settlements[i].State = SettledLost // until the database says otherwise
		b.index[claimKey{int64(c.Subscription), c.Seq, c.Fence}] = i
		stream := b.runs[c.stream()]
		switch {
		case stream == nil:
			stream = &run{from: c.Seq}
			b.runs[c.stream()] = stream
		case c.Seq <= results[stream.last].Claim.Seq:
			continue // out of order, or twice
		}
		stream.count++
		stream.last = i
		switch r.Verdict {
		case Succeeded:
			b.succeeded.add(c, stream.from, &r.Attempt)
		case Failed:
			b.failed.add(c, stream.from, &r.Attempt)
			b.gone = append(b.gone, r.Gone)
			attempt := int32(c.Attempt)
			if r.Gone {
				attempt = math.MaxInt32
			}
			b.attempts = append(b.attempts, attempt)
			b.blameless = append(b.blameless, r.Blameless)
			b.delays = append(b.delays, max(r.Delay, time.Millisecond).Milliseconds())
			if r.Unavailable {
				b.strikes.add(c, stream.from, r)
			}
		case Postponed:
			b.postponed.add(c, stream.from)
			b.postpone = append(b.postpone, max(r.Delay, time.Millisecond).Milliseconds())
		}
	}
	for i := range results {
		r := &results[i]
		switch stream := b.runs[r.Claim.stream()]; {
		case stream.last != i:
		case r.Verdict == Succeeded && r.Next != nil:
			b.advanced.add(r.Claim, stream.from)
			b.counts = append(b.counts, stream.count)
			b.nexts = append(b.nexts, r.Next.Seq)
			b.nextEvents = append(b.nextEvents, r.Next.EventID)
		default:
			b.ended.add(r.Claim, stream.from)
		}
	}
	return b
}

// queue adds the statements, in the order that they need: rows of deliveries before
// their leases, and the wake-up of streams last, with a snapshot that shows all.
func (b *settleBatch) queue(q *pgx.Batch, now *time.Time) {
	if ok, failed := &b.succeeded, &b.failed; len(ok.seqs) > 0 && len(failed.seqs) > 0 || len(b.strikes.seqs) > 0 {
		q.Queue(dbgen.SubscriptionLockSettling, failed.subscriptions, b.attempts, b.strikes.subscriptions, ok.subscriptions)
	}
	if e := &b.succeeded; len(e.seqs) > 0 {
		q.Queue(dbgen.DeliverySettleDelivered, e.subscriptions, e.assets, e.seqs, e.froms, e.fences, e.startedMsAgo, e.durationsMs, e.statuses, e.outcomes,
			e.answers, e.answersCut, e.headers, e.dns, e.connect, e.tls, e.firstByte, now).
			Query(func(rows pgx.Rows) error { return b.mark(rows, SettledDelivered) })
	}
	if e := &b.failed; len(e.seqs) > 0 {
		q.Queue(dbgen.DeliverySettleFailed, e.subscriptions, e.assets, e.seqs, e.froms, e.fences, b.gone, b.blameless, b.delays, e.startedMsAgo, e.durationsMs,
			e.statuses, e.outcomes, e.answers, e.answersCut, e.headers, e.errors, e.dns, e.connect, e.tls, e.firstByte, now).
			Query(b.markFailed)
	}
	if len(b.strikes.seqs) > 0 {
		b.strikes.queue(q, now, b.markOpened)
	}
	if p := &b.postponed; len(p.seqs) > 0 {
		q.Queue(dbgen.DeliveryPostpone, p.subscriptions, p.assets, p.seqs, p.froms, p.fences, b.postpone, now).
			Query(func(rows pgx.Rows) error { return b.mark(rows, SettledPending) })
	}
	if a := &b.advanced; len(a.seqs) > 0 {
		q.Queue(dbgen.LeaseAdvance, a.subscriptions, a.assets, a.froms, a.fences, b.counts, b.nexts, b.nextEvents)
	}
	if e := &b.ended; len(e.seqs) > 0 {
		q.Queue(dbgen.LeaseDrop, e.subscriptions, e.assets, e.froms, e.fences).Query(b.markReleased)
		q.Queue(dbgen.StreamWake, e.subscriptions, e.assets)
	}
}

// mark notes rows of (subscription, seq, fence).
func (b *settleBatch) mark(rows pgx.Rows, state Settled) error {
	var k claimKey
	for rows.Next() {
		if err := rows.Scan(&k.subscription, &k.seq, &k.fence); err != nil {
			return err
		}
		b.settlements[b.index[k]].State = state
	}
	return rows.Err()
}

func (b *settleBatch) markFailed(rows pgx.Rows) error {
	var k claimKey
	disabled := map[int64]bool{} // and told
	for rows.Next() {
		var s Settlement
		var told int64
		if err := rows.Scan(&k.subscription, &k.seq, &k.fence, &s.State, &s.Disabled, &told); err != nil {
			return err
		}
		if s.Disabled != "" && disabled[k.subscription] {
			s.Disabled = ""
		} else if s.Disabled != "" {
			disabled[k.subscription] = true
		}
		b.settlements[b.index[k]] = s
	}
	return rows.Err()
}

// markOpened notes on one result of each subscription that its breaker opened.
func (b *settleBatch) markOpened(rows pgx.Rows) error {
	var id int64
	opened := map[int64]bool{}
	for rows.Next() {
		if err := rows.Scan(&id); err != nil {
			return err
		}
		opened[id] = true
	}
	for i := range b.results {
		if id := int64(b.results[i].Claim.Subscription); opened[id] && b.settlements[i].State != SettledLost {
			b.settlements[i].Opened = true
			delete(opened, id)
		}
	}
	return rows.Err()
}

// markReleased notes leases that ended, by where they stood.
func (b *settleBatch) markReleased(rows pgx.Rows) error {
	var k claimKey
	for rows.Next() {
		if err := rows.Scan(&k.subscription, &k.seq, &k.fence); err != nil {
			return err
		}
		last := b.runs[b.results[b.index[k]].Claim.stream()].last
		if b.results[last].Verdict == Released {
			b.settlements[last].State = SettledReleased
		}
	}
	return rows.Err()
}

// claimArrays name claims, column by column.
type claimArrays struct {
	subscriptions []int64
	assets        []string
	seqs, froms   []int64
	fences        []int64
}

// add names a claim, and the delivery at which its lease stands.
func (a *claimArrays) add(c *Claim, from int64) {
	a.subscriptions = append(a.subscriptions, int64(c.Subscription))
	a.assets = append(a.assets, c.Asset)
	a.seqs = append(a.seqs, c.Seq)
	a.froms = append(a.froms, from)
	a.fences = append(a.fences, c.Fence)
}

// evidenceArrays hold attempts, column by column.
type evidenceArrays struct {
	claimArrays
	startedMsAgo                 []int64
	durationsMs, statuses        []int32
	outcomes                     []string
	answers                      [][]byte
	answersCut                   []bool
	headers                      [][]byte
	errors                       []string
	dns, connect, tls, firstByte []int32
}

func (a *evidenceArrays) add(c *Claim, from int64, e *AttemptEvidence) {
	a.claimArrays.add(c, from)
	ago := time.Duration(0)
	if !e.Started.IsZero() {
		ago = max(time.Since(e.Started), 0)
	}
	a.startedMsAgo = append(a.startedMsAgo, ago.Milliseconds())
	a.durationsMs = append(a.durationsMs, int32(e.Duration.Milliseconds()))
	status := int32(-1)
	if e.Answered {
		status = int32(e.Status)
	}
	a.statuses = append(a.statuses, status)
	a.outcomes = append(a.outcomes, text(e.Outcome))
	a.answers = append(a.answers, e.Answer)
	a.answersCut = append(a.answersCut, e.AnswerCut)
	a.headers = append(a.headers, e.Headers)
	a.errors = append(a.errors, text(e.Error))
	a.dns = append(a.dns, int32(e.DNS.Microseconds()))
	a.connect = append(a.connect, int32(e.Connect.Microseconds()))
	a.tls = append(a.tls, int32(e.TLS.Microseconds()))
	a.firstByte = append(a.firstByte, int32(e.FirstByte.Microseconds()))
}
