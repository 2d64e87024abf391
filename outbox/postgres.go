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
