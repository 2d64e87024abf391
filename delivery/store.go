package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/shorttx"
)

// StoreConfig is what a Store may be told. The zero value works.
type StoreConfig struct {
	// Guard judges the URLs of subscriptions.
	// Default: the production policy of package guard.
	Guard *guard.Guard

	// Keyring encrypts signing secrets at rest.
	// Default: nil, they are stored as they are.
	Keyring *Keyring

	// Now, if set, is asked for the time of leases, due times and settling
	// instead of the database, so that a test owns the clock. A time from
	// anything but one clock for all processes breaks leases.
	// Default: nil, the database's clock.
	Now func() time.Time
}

// Store is the data layer of deliveries: subscriptions, claims and their leases,
// settling, what operators do, and the log. It holds a connection only for the
// length of a call. It is safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool
	guard   *guard.Guard
	keyring *Keyring
	clock   func() time.Time
	floors  floors
}

// NewStore returns a store on the database of pool, whose schema must be up to date
// (package db, or `postlane migrate up`).
func NewStore(pool *pgxpool.Pool, config StoreConfig) (*Store, error) {
	if pool == nil {
		return nil, errors.New("delivery: a store needs a pool")
	}
	s := &Store{pool: pool, guard: config.Guard, keyring: config.Keyring, clock: config.Now}
	if s.guard == nil {
		g, err := guard.New(guard.Policy{})
		if err != nil {
			return nil, fmt.Errorf("delivery: %w", err)
		}
		s.guard = g
	}
	return s, nil
}

// now is the optional clock of the statements: nil is the database's.
func (s *Store) now() *time.Time {
	if s.clock == nil {
		return nil
	}
	t := s.clock()
	return &t
}

// time is what paces this process: it decides nothing about deliveries.
func (s *Store) time() time.Time {
	if s.clock == nil {
		return time.Now()
	}
	return s.clock()
}

// pipeline runs statements of the hot path as one transaction in one round trip:
// read committed, so that each statement sees what was committed before it, and with
// the settings that keep the planner on the indexes.
func (s *Store) pipeline(ctx context.Context, queue func(*pgx.Batch)) error {
	batch := &pgx.Batch{}
	batch.Queue("begin isolation level read committed")
	batch.Queue(dbgen.PlanSettings)
	queue(batch)
	batch.Queue("commit")
	return s.pool.SendBatch(ctx, batch).Close()
}

// transaction runs f in a read-committed transaction, and commits if it succeeds. The
// server ends it if this process falls silent in the middle.
func (s *Store) transaction(ctx context.Context, f func(tx pgx.Tx) error) error {
	return shorttx.Run(ctx, s.pool, f)
}
