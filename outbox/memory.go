package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/traceparent"
)

// Memory is a Store in the memory of the process, for tests and tools. It answers
// as Postgres does, except that it keeps no audit trail: a published message is
// forgotten, and its id and idempotency key with it.
type Memory struct {
	config StoreConfig

	mu       sync.Mutex
	seq      int64
	fence    int64
	after    string // the queue that the last claim ended with
	messages map[string]*memoryMessage
	keys     map[memoryKey]string // idempotency keys and whose they are
	queues   map[string]*memoryQueue
}

type memoryKey struct{ tenant, key string }

type memoryMessage struct {
	Message
	seq      int64
	since    time.Time
	attempts int
	parked   bool
	err      string
}

// memoryQueue is what waits in a queue, and who holds it.
type memoryQueue struct {
	pending []*memoryMessage // by seq
	lease   *memoryLease
	until   time.Time // of the wait for the next attempt; zero: none
}

type memoryLease struct {
	fence int64
	end   time.Time
	seqs  []int64
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory(config StoreConfig) (*Memory, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Memory{
		config: config, messages: map[string]*memoryMessage{}, keys: map[memoryKey]string{}, queues: map[string]*memoryQueue{},
	}, nil
}

// Lease is how long a claim lasts.
func (s *Memory) Lease() time.Duration { return *s.config.Lease }

// Claimant is the name that claims are made in.
func (s *Memory) Claimant() string { return s.config.Claimant }

// Retained is how many messages the store holds: the backlog and what is parked,
// and nothing else.
func (s *Memory) Retained() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.messages)
}

// Stage writes messages in a transaction of Memory.Begin: see Store.
func (s *Memory) Stage(ctx context.Context, tx pgx.Tx, messages ...Message) ([]Staged, error) {
	if tx == nil {
		return nil, ErrNoTx
	}
	t, ok := tx.(*memoryTx)
	if !ok || t.store != s {
		return nil, fmt.Errorf("outbox: stage: %T is not a transaction of this Memory; take one from its Begin", tx)
	}
	if t.ended {
		return nil, pgx.ErrTxClosed
	}
	parent := traceparent.Of(ctx)
	normal := make([]Message, len(messages))
	for i, m := range messages {
		var err error
		if normal[i], err = m.normalize(i, parent); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	staged := make([]Staged, len(normal))
	for i, m := range normal {
		staged[i].ID = m.ID
		if s.knows(m) || t.knows(m) {
			staged[i].Duplicate = true
			continue
		}
		s.seq++
		staged[i].Seq = s.seq
		m.StagedAt = s.config.Now()
		m.Payload, m.Headers = slices.Clone(m.Payload), maps.Clone(m.Headers)
		t.messages = append(t.messages, &memoryMessage{Message: m, seq: s.seq, since: m.StagedAt})
	}
	return staged, nil
}

// knows reports whether a message of this id or idempotency key is there.
func (s *Memory) knows(m Message) bool {
	_, key := s.keys[memoryKey{m.Tenant, m.IdempotencyKey}]
	return s.messages[m.ID] != nil || m.IdempotencyKey != "" && key
}

// add lets a committed message join its queue.
func (s *Memory) add(m *memoryMessage) {
	if s.knows(m.Message) {
		return // somebody else's was committed first
	}
	s.messages[m.ID] = m
	if m.IdempotencyKey != "" {
		s.keys[memoryKey{m.Tenant, m.IdempotencyKey}] = m.ID
	}
	s.enqueue(m)
}

func (s *Memory) enqueue(m *memoryMessage) {
	q := s.queues[m.Queue]
	if q == nil {
		q = &memoryQueue{}
		s.queues[m.Queue] = q
	}
	at, _ := slices.BinarySearchFunc(q.pending, m.seq, func(o *memoryMessage, seq int64) int { return cmp.Compare(o.seq, seq) })
	q.pending = slices.Insert(q.pending, at, m)
}

// Claim takes messages: see Store.
func (s *Memory) Claim(ctx context.Context, limit int) ([]Claim, error) {
	if limit < 1 {
		return nil, errors.New("outbox: claim at least 1 message")
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("outbox: claim: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.config.Now()
	s.fence++
	free := s.free(limit, now)
	share := max(ceil(limit, max(len(free), 1)), ceil(limit, 10))
	var claims []Claim
	for _, name := range free {
		q := s.queues[name]
		lease := &memoryLease{fence: s.fence, end: now.Add(s.Lease())}
		for _, m := range q.due(now) {
			if len(claims) == limit || len(lease.seqs) == share {
				break
			}
			claims = append(claims, m.claim(s.fence, now))
			lease.seqs = append(lease.seqs, m.seq)
		}
		if lease.seqs != nil {
			q.lease, q.until, s.after = lease, time.Time{}, name
		}
	}
	return claims, nil
}

func ceil(a, b int) int { return (a + b - 1) / b }

// free returns the queues that have something to give, up to limit, beginning
// behind the one that gave last.
func (s *Memory) free(limit int, now time.Time) (free []string) {
	names := slices.Sorted(maps.Keys(s.queues))
	start, _ := slices.BinarySearch(names, s.after+"\x00")
	for i := range names {
		name := names[(start+i)%len(names)]
		if q := s.queues[name]; len(free) < limit && !q.busy(now) && len(q.due(now)) > 0 {
			free = append(free, name)
		}
	}
	return free
}

// due returns what waits in the queue, without what is scheduled for later.
func (q *memoryQueue) due(now time.Time) []*memoryMessage {
	due := make([]*memoryMessage, 0, len(q.pending))
	for _, m := range q.pending {
		if !m.RunAt.After(now) {
			due = append(due, m)
		}
	}
	return due
}

// busy reports whether nothing of the queue can be claimed. A lease that ran out
// is taken back, and its first message charged an attempt.
func (q *memoryQueue) busy(now time.Time) bool {
	if q.lease != nil && !q.lease.end.After(now) {
		if m := q.find(q.lease.seqs[0]); m != nil {
			m.attempts++
			m.err = "stalled: the lease ran out"
		}
		q.lease = nil
	}
	return q.lease != nil || q.until.After(now)
}

func (q *memoryQueue) find(seq int64) *memoryMessage {
	at, ok := slices.BinarySearchFunc(q.pending, seq, func(o *memoryMessage, seq int64) int { return cmp.Compare(o.seq, seq) })
	if !ok {
		return nil
	}
	return q.pending[at]
}

func (m *memoryMessage) claim(fence int64, now time.Time) Claim {
	c := Claim{Message: m.Message, Seq: m.seq, Fence: fence, Attempt: m.attempts + 1, ClaimedAt: now}
	c.Payload, c.Headers = slices.Clone(m.Payload), maps.Clone(m.Headers)
	return c
}
