// Package producer is a process that changes things in transactions and says so in
// them, as an application does, and writes down what it did.
package producer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/internal/torture/journal"
)

// Config is what a producer is told.
type Config struct {
	// Name is in its transactions' names and in its journal's.
	Name        string
	DatabaseURL string
	// Dir is where its journal is.
	Dir    string
	Tenant string
	Seed   uint64
	// Writers is how many transactions are open at a time, and Rate how many begin
	// in a second.
	Writers int
	Rate    float64
	// Assets is how many there are; the events without one come on top.
	Assets int
}

// Schema is the business table, by which a transaction of which nobody knows the
// outcome is found out in the end, and the assets, whose rows are locks.
const Schema = `CREATE SCHEMA torture;
CREATE TABLE torture.transactions (id text PRIMARY KEY);
CREATE TABLE torture.assets (id text PRIMARY KEY, version bigint NOT NULL DEFAULT 0)`

// Types are the types of events.
var Types = []string{"asset.created", "asset.changed", "asset.part.changed", "order.paid", "order.sent"}

// Run produces until ctx ends.
func Run(ctx context.Context, c Config) error {
	settings, err := pgxpool.ParseConfig(c.DatabaseURL)
	if err != nil {
		return err
	}
	settings.MaxConns = int32(c.Writers)
	settings.ConnConfig.ConnectTimeout = 2 * time.Second
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return err
	}
	defer pool.Close()
	log, err := journal.Create(filepath.Join(c.Dir, c.Name+".jsonl"), true)
	if err != nil {
		return err
	}
	defer log.Close()

	var writers sync.WaitGroup
	failed := make([]error, c.Writers)
	for n := range c.Writers {
		writers.Go(func() {
			w := &writer{config: c, pool: pool, log: log, name: fmt.Sprintf("%s-%d", c.Name, n), random: rand.New(rand.NewPCG(c.Seed, uint64(n)))}
			failed[n] = w.run(ctx)
		})
	}
	writers.Wait()
	return errors.Join(failed...)
}

// writer makes one transaction after the other.
type writer struct {
	config Config
	pool   *pgxpool.Pool
	log    *journal.Writer
	name   string
	random *rand.Rand
	count  int
}

func (w *writer) run(ctx context.Context) error {
	for ctx.Err() == nil {
		w.count++
		if err := w.transaction(ctx, fmt.Sprintf("%s-%d", w.name, w.count)); err != nil {
			return err
		}
		mean := float64(time.Second) * float64(w.config.Writers) / w.config.Rate
		w.pause(ctx, time.Duration(w.random.ExpFloat64()*mean))
	}
	return nil
}

func (w *writer) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// transaction makes one, whatever becomes of it. Only a journal that cannot be written
// is an error. The end of ctx does not interrupt one.
func (w *writer) transaction(ctx context.Context, name string) error {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	t := &transaction{writer: w, intent: journal.Intent{Tx: name, Began: journal.Now()}}
	tx, err := w.pool.BeginTx(work, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil // it has no name that the database knows
	}
	defer func() { _ = tx.Rollback(work) }()
	commit, err := t.write(work, tx)
	if err != nil {
		return nil // nothing was committed, and nothing was written down
	}
	if err := w.log.Write(journal.Line{Intent: &t.intent}); err != nil {
		return err
	}
	outcome := journal.RolledBack
	if commit {
		switch err := tx.Commit(work); {
		case err == nil:
			outcome = journal.Committed
		case errors.Is(err, pgx.ErrTxCommitRollback):
		default:
			outcome = journal.Unknown
		}
	}
	return w.log.Write(journal.Line{Outcome: &journal.Outcome{Tx: name, At: journal.Now(), Outcome: outcome}})
}
