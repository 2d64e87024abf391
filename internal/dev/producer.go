package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
)

// producer is the application of the demonstration: it changes assets and says so, in
// one transaction.
type producer struct {
	pool   *pgxpool.Pool
	tenant string
	// committed are the ids of the events whose transactions committed, by type.
	mu        sync.Mutex
	committed map[string][]string
	events    atomic.Int64
}

const (
	versionCreated = "asset.version_created"
	expired        = "asset.expired"
)

func newProducer(ctx context.Context, pool *pgxpool.Pool, tenant string) (*producer, error) {
	_, err := pool.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS postlane_demo;
		CREATE TABLE IF NOT EXISTS postlane_demo.assets (id text PRIMARY KEY, version integer NOT NULL DEFAULT 0)`)
	if err != nil {
		return nil, fmt.Errorf("making the demonstration's own table: %w", err)
	}
	return &producer{pool: pool, tenant: tenant, committed: map[string][]string{}}, nil
}

// errChangedMind makes a transaction roll back: its events must never arrive.
var errChangedMind = errors.New("rolled back on purpose")

// change makes one transaction with n changes of an asset and their events. One in fifty
// is rolled back, and its events do not count.
func (p *producer) change(ctx context.Context, asset string, n int) (committed int, err error) {
	var ids, types []string
	err = pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		var version int
		err := tx.QueryRow(ctx, `INSERT INTO postlane_demo.assets (id, version) VALUES ($1, $2)
			ON CONFLICT (id) DO UPDATE SET version = assets.version + $2 RETURNING version`, asset, n).Scan(&version)
		if err != nil {
			return err
		}
		events := make([]delivery.Event, n)
		for i := range events {
			kind := versionCreated
			if rand.N(4) == 0 {
				kind = expired
			}
			payload, err := json.Marshal(map[string]any{"type": kind, "data": map[string]any{"asset": asset, "version": version - n + 1 + i}})
			if err != nil {
				return err
			}
			events[i] = delivery.Event{Tenant: p.tenant, Type: kind, Asset: asset, Payload: payload}
			types = append(types, kind)
		}
		enqueued, err := delivery.Enqueue(ctx, tx, events...)
		if err != nil {
			return err
		}
		for _, e := range enqueued {
			ids = append(ids, e.ID)
		}
		if rand.N(50) == 0 {
			return errChangedMind
		}
		return nil
	})
	if errors.Is(err, errChangedMind) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, id := range ids {
		p.committed[types[i]] = append(p.committed[types[i]], id)
	}
	p.events.Add(int64(n))
	return n, nil
}

// load writes exactly the given number of events over so many streams. Each stream is one
// goroutine's, so that its order is that of its transactions.
func (p *producer) load(ctx context.Context, events, streams int) error {
	const writers = 8
	var group sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		share := events / writers
		if w < events%writers {
			share++
		}
		group.Go(func() {
			for share > 0 {
				// The streams of this writer are w, w+writers, ...
				mine := (streams - w + writers - 1) / writers
				stream := w
				if mine > 0 {
					stream = w + writers*rand.N(mine)
				}
				n, err := p.change(ctx, fmt.Sprintf("asset-%d", stream), min(1+rand.N(4), share))
				if err != nil {
					errs[w] = err
					return
				}
				share -= n
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
