package outbox

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// settle gives each claim that is held to act, which settles its message; the
// others are lost.
func (s *Memory) settle(ctx context.Context, what string, claims []Claim, act func(i int, q *memoryQueue, m *memoryMessage)) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("outbox: %s: %w", what, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := held{}
	for i, c := range claims {
		q := s.queues[c.Queue]
		if q == nil || q.lease == nil || q.lease.fence != c.Fence || !slices.Contains(q.lease.seqs, c.Seq) {
			continue
		}
		h[claimKey{c.Queue, c.Seq, c.Fence}] = true
		q.lease.seqs = slices.DeleteFunc(q.lease.seqs, func(seq int64) bool { return seq == c.Seq })
		if len(q.lease.seqs) == 0 {
			q.lease = nil
		}
		act(i, q, q.find(c.Seq))
		if len(q.pending) == 0 {
			delete(s.queues, c.Queue)
		}
	}
	return h.check(claims)
}

// MarkPublished settles messages that were published, and forgets them: see Store.
func (s *Memory) MarkPublished(ctx context.Context, claims ...Claim) error {
	return s.settle(ctx, "mark published", claims, func(_ int, q *memoryQueue, m *memoryMessage) {
		q.remove(m)
		delete(s.messages, m.ID)
		delete(s.keys, memoryKey{m.Tenant, m.IdempotencyKey})
	})
}

// Release gives messages back: see Store.
func (s *Memory) Release(ctx context.Context, claims ...Claim) error {
	return s.settle(ctx, "release", claims, func(int, *memoryQueue, *memoryMessage) {})
}

// Fail charges attempts: see Store.
func (s *Memory) Fail(ctx context.Context, failures ...Failure) error {
	claims := make([]Claim, len(failures))
	for i, f := range failures {
		claims[i] = f.Claim
	}
	return s.settle(ctx, "fail", claims, func(i int, q *memoryQueue, m *memoryMessage) {
		m.attempts++
		m.err = errorText(failures[i].Error)
		if failures[i].Park {
			m.parked = true
			q.remove(m)
			return
		}
		q.until = s.config.Now().Add(time.Duration(delayMillis(failures[i].Delay)) * time.Millisecond)
	})
}

func (q *memoryQueue) remove(m *memoryMessage) {
	q.pending = slices.DeleteFunc(q.pending, func(o *memoryMessage) bool { return o == m })
}

// Renew makes leases last: see Store.
func (s *Memory) Renew(ctx context.Context, claims ...Claim) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("outbox: renew: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := held{}
	end := s.config.Now().Add(s.Lease())
	for _, c := range claims {
		if q := s.queues[c.Queue]; q != nil && q.lease != nil && q.lease.fence == c.Fence && slices.Contains(q.lease.seqs, c.Seq) {
			q.lease.end = end
			h[claimKey{c.Queue, c.Seq, c.Fence}] = true
		}
	}
	return h.check(claims)
}

// Pending counts what is not published.
func (s *Memory) Pending(ctx context.Context) (Backlog, error) {
	if err := ctx.Err(); err != nil {
		return Backlog{}, fmt.Errorf("outbox: pending: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.config.Now()
	var b Backlog
	for _, m := range s.messages {
		switch {
		case m.parked:
			b.Parked++
		case m.RunAt.After(now):
			b.Scheduled++
		default:
			b.Pending++
			since := m.since
			if m.RunAt.After(since) {
				since = m.RunAt
			}
			b.OldestAge = max(b.OldestAge, now.Sub(since))
		}
	}
	for _, q := range s.queues {
		if q.until.After(now) {
			b.Waiting++
		}
	}
	return b, nil
}

// Retry has messages tried again at once, and returns the ids of those for which
// that means something: see Postgres.Retry.
func (s *Memory) Retry(ctx context.Context, ids ...string) (retried []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("outbox: retry: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		m := s.messages[id]
		if m == nil {
			continue
		}
		if m.parked {
			m.parked, m.attempts, m.since = false, 0, s.config.Now()
			s.enqueue(m)
			retried = append(retried, id)
			continue
		}
		if q := s.queues[m.Queue]; q != nil && len(q.pending) > 0 && q.pending[0] == m && q.until.After(s.config.Now()) {
			q.until = time.Time{}
			retried = append(retried, id)
		}
	}
	return retried, nil
}
