package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/wake"
)

// StoreConfig is what a store may be told. The zero value works.
type StoreConfig struct {
	// Claimant is the name that claims are made in. It is what people read in the
	// leases and the audit trail. What protects a claim is its fence, which
	// nobody else has: two processes that share a name still cannot write for each
	// other, but nobody can tell any more which of them published what.
	// Default: "relay-" and a random UUID, so each store has its own.
	Claimant string

	// Lease is how long a claim is its claimant's. A relay renews it in time; what
	// a killed one held is claimed by another after it. See NormalizeLease for
	// what is allowed; anything else is refused when the store is made.
	// Default: nil, DefaultLease.
	Lease *time.Duration

	// Now, if set, is asked for the time instead of the store's own clock (the
	// database's for Postgres), so that a test owns the clock.
	// Default: nil.
	Now func() time.Time
}

func (c StoreConfig) withDefaults() (StoreConfig, error) {
	lease, err := NormalizeLease(c.Lease)
	if err != nil {
		return c, err
	}
	c.Lease = &lease
	if c.Claimant == "" {
		c.Claimant = "relay-" + uuid.NewString()
	}
	if !isText(c.Claimant) || len(c.Claimant) > MaxName {
		return c, fmt.Errorf("outbox: a claimant is UTF-8 without NUL of at most %d bytes", MaxName)
	}
	return c, nil
}

var queries = dbgen.New()

// Postgres is the Store in an application's own database. It holds a connection only
// for the length of a call.
//
// It works with every query mode of pgx and behind a pooler in transaction mode.
type Postgres struct {
	pool   *pgxpool.Pool
	config StoreConfig

	mu     sync.Mutex
	after  string    // the queue that the last claim ended with: the next begins behind it
	tended time.Time // when Claim last looked at leases and waits, by the process's clock
}

var _ Store = (*Postgres)(nil)

// NewPostgres returns a store on the database of pool, whose schema must be up to
// date (package db, or `postlane migrate up`).
func NewPostgres(pool *pgxpool.Pool, config StoreConfig) (*Postgres, error) {
	if pool == nil {
		return nil, errors.New("outbox: a store needs a pool")
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Postgres{pool: pool, config: config}, nil
}

// Lease is how long a claim lasts.
func (s *Postgres) Lease() time.Duration { return *s.config.Lease }

// Claimant is the name that claims are made in.
func (s *Postgres) Claimant() string { return s.config.Claimant }

// now is the optional clock of the statements: nil is the database's.
func (s *Postgres) now() *time.Time {
	if s.config.Now == nil {
		return nil
	}
	t := s.config.Now()
	return &t
}

// pipeline runs statements as one transaction in one round trip: read committed, so
// that each sees what was committed before it, and with the settings that keep the
// planner on the indexes.
func (s *Postgres) pipeline(ctx context.Context, queue func(*pgx.Batch)) error {
	batch := &pgx.Batch{}
	batch.Queue("begin isolation level read committed")
	batch.Queue(dbgen.PlanSettings)
	queue(batch)
	batch.Queue("commit")
	return s.pool.SendBatch(ctx, batch).Close()
}

// Stage writes messages in tx, whatever database it belongs to: see Store. It
// waits for nobody but another open transaction that stages the same id or
// idempotency key.
func (s *Postgres) Stage(ctx context.Context, tx pgx.Tx, messages ...Message) ([]Staged, error) {
	return stage(ctx, tx, s.now(), messages)
}

// Stage writes messages in the caller's transaction. It is Postgres.Stage for those
// who have no store, because they only stage.
func Stage(ctx context.Context, tx pgx.Tx, messages ...Message) ([]Staged, error) {
	return stage(ctx, tx, nil, messages)
}

func stage(ctx context.Context, tx pgx.Tx, now *time.Time, messages []Message) ([]Staged, error) {
	if tx == nil {
		return nil, ErrNoTx
	}
	if len(messages) == 0 {
		return nil, nil
	}
	n := len(messages)
	p := &dbgen.MessageStageParams{
		Wake: wake.Allow(), Now: now,
		Ids: make([]string, n), Queues: make([]string, n), Topics: make([]string, n), Tenants: make([]string, n),
		IdempotencyKeys: make([]string, n), Traceparents: make([]string, n), EnqueuedBys: make([]string, n),
		Headers: make([]string, n), Payloads: make([][]byte, n), MaxAttempts: make([]int32, n), RunAtsUs: make([]int64, n),
	}
	parent := traceparent(ctx)
	for i, m := range messages {
		m, err := m.normalize(i, parent)
		if err != nil {
			return nil, err
		}
		p.Ids[i], p.Queues[i], p.Topics[i], p.Tenants[i] = m.ID, m.Queue, m.Topic, m.Tenant
		p.IdempotencyKeys[i], p.Traceparents[i], p.EnqueuedBys[i] = m.IdempotencyKey, m.Traceparent, m.EnqueuedBy
		p.Headers[i] = encodeHeaders(m.Headers)
		if p.Payloads[i] = m.Payload; m.Payload == nil {
			p.Payloads[i] = []byte{} // nil would be NULL
		}
		p.MaxAttempts[i] = int32(m.MaxAttempts)
		if !m.RunAt.IsZero() {
			p.RunAtsUs[i] = max(m.RunAt.UnixMicro(), 1)
		}
	}
	rows, err := queries.MessageStage(ctx, tx, p)
	if err != nil {
		return nil, fmt.Errorf("outbox: stage: %w", err)
	}
	seqs := make(map[string]int64, len(rows))
	for _, r := range rows {
		seqs[r.ID] = r.Seq
	}
	staged := make([]Staged, n)
	for i, id := range p.Ids {
		seq, fresh := seqs[id]
		staged[i] = Staged{ID: id, Seq: seq, Duplicate: !fresh}
		delete(seqs, id) // given twice in this call, it is new once
	}
	return staged, nil
}
