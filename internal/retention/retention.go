// Package retention removes what has been kept for long enough: deliveries, events,
// messages of the outbox, the audit log and sessions of the console. One pass is Once; a
// server makes one from time to time (Run).
package retention

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/outbox"
)

// Keep says for how long what is over is kept; 0 is for ever. Nothing is removed that
// nobody said: these rows are in the database of an application, and what of them it has
// to keep is its owner's to know. Sessions of the console that are over, and secrets that
// no longer sign, are of no use to anybody and go in any case.
type Keep struct {
	// Settled, Dead and Events are as in delivery.Retention.
	Settled, Dead, Events time.Duration
	// Messages is for how long the outbox keeps messages that were published, from then
	// on, and with them the memory of their ids.
	Messages time.Duration
	// Audit is for how long the audit log is kept.
	Audit time.Duration
}

// Removed counts rows.
type Removed struct {
	delivery.Pruned
	Messages int64 `json:"messages"`
	Audit    int64 `json:"audit"`
	Sessions int64 `json:"sessions"`
}

// Config is what a pass works with. Pool and Store are required.
type Config struct {
	Pool  *pgxpool.Pool
	Store *delivery.Store
	Keep  Keep

	// Counted, if it is set, is told of rows that were removed, by kind: those of
	// Removed's JSON.
	Counted func(kind string, rows int64)

	// Gentle makes a pass wait between two transactions for as long as the one before
	// took, so that it takes half of one connection's time at most.
	Gentle bool

	// Logger is told what a person should know. Default: slog.Default().
	Logger *slog.Logger
}

const (
	// every is how often a server makes a pass, and firstWithin when the first one is:
	// not at once, for a server that starts has other things to do.
	every       = time.Hour
	firstWithin = 5 * time.Minute
	batch       = 1000
)

var queries = dbgen.New()

// Run makes passes until ctx ends, at times drawn by lot, so that many servers rarely make
// them at once. Errors are logged, and the next pass goes on.
func Run(ctx context.Context, c Config) {
	c.Gentle = true
	log := cmp.Or(c.Logger, slog.Default())
	timer := time.NewTimer(rand.N(firstWithin))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		removed, err := Once(ctx, c)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.Error("pruning stopped early; the next pass goes on", "error", err)
		case removed != Removed{}:
			log.Info("pruned", "deliveries", removed.Deliveries, "attempts", removed.Attempts, "events", removed.Events,
				"secrets", removed.Secrets, "messages", removed.Messages, "audit", removed.Audit, "sessions", removed.Sessions, "took", time.Since(began).Round(time.Millisecond))
		}
		timer.Reset(every/2 + rand.N(every))
	}
}

// Once makes one pass, in small transactions. What it has done when it is interrupted
// stays done, and the numbers are right also with an error.
func Once(ctx context.Context, c Config) (Removed, error) {
	p := pass{Config: c, stepped: time.Now()}
	var err error
	p.removed.Pruned, err = c.Store.Prune(ctx, delivery.Retention{
		Settled: c.Keep.Settled, Dead: c.Keep.Dead, Events: c.Keep.Events, Batch: batch,
		Each: func(ctx context.Context, did delivery.Pruned) error {
			return p.step(ctx, map[string]int64{"deliveries": did.Deliveries, "attempts": did.Attempts, "events": did.Events, "secrets": did.Secrets})
		},
	})
	if err == nil && c.Keep.Messages > 0 {
		err = p.messages(ctx)
	}
	if err == nil && c.Keep.Audit > 0 {
		err = p.audit(ctx)
	}
	if err == nil {
		err = p.sessions(ctx)
	}
	return p.removed, err
}

// pass is one pass.
type pass struct {
	Config
	removed Removed
	// stepped is when the last transaction's wait was over.
	stepped time.Time
}

// step comes after each transaction.
func (p *pass) step(ctx context.Context, counts map[string]int64) error {
	if p.Counted != nil {
		for kind, n := range counts {
			p.Counted(kind, n)
		}
	}
	if p.Gentle {
		timer := time.NewTimer(time.Since(p.stepped))
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	p.stepped = time.Now()
	return ctx.Err()
}

func (p *pass) messages(ctx context.Context) error {
	store, err := outbox.NewPostgres(p.Pool, outbox.StoreConfig{})
	if err != nil {
		return err
	}
	for more := true; more; {
		n, err := store.Prune(ctx, p.Keep.Messages, batch)
		if err != nil {
			return err
		}
		p.removed.Messages += int64(n)
		more = n == batch
		if err := p.step(ctx, map[string]int64{"messages": int64(n)}); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) audit(ctx context.Context) error {
	log := audit.New(p.Pool)
	for after, more := int64(0), true; more; {
		n, last, err := log.Prune(ctx, p.Keep.Audit, after, batch)
		if err != nil {
			return err
		}
		p.removed.Audit += n
		after, more = last, n > 0
		if err := p.step(ctx, map[string]int64{"audit": n}); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) sessions(ctx context.Context) error {
	for more := true; more; {
		n, err := queries.PruneSessions(ctx, p.Pool, batch)
		if err != nil {
			return fmt.Errorf("retention: sessions: %w", err)
		}
		p.removed.Sessions += n
		more = n == batch
		if err := p.step(ctx, map[string]int64{"sessions": n}); err != nil {
			return err
		}
	}
	return nil
}
