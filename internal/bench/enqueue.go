package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
)

// enqueue compares transactions of one business INSERT and one Enqueue with the same and a
// plain INSERT of the same bytes. The two take turns in short slices, so that what
// disturbs the machine meets both.
func enqueue(ctx context.Context, r *run) (map[string]any, error) {
	_, err := r.pool.Exec(ctx, `CREATE SCHEMA bench;
		CREATE TABLE bench.orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL, amount integer NOT NULL);
		CREATE TABLE bench.plain (id text PRIMARY KEY, tenant text NOT NULL, type text NOT NULL, asset text, content_type text NOT NULL, payload bytea NOT NULL, created_at timestamptz NOT NULL DEFAULT now())`)
	if err != nil {
		return nil, err
	}
	if _, err := r.subscribe(ctx, 1, "http://127.0.0.1:8099"); err != nil {
		return nil, err
	}
	var serial atomic.Int64
	business := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO bench.orders (state, amount) VALUES ($1, $2)", "paid", 100)
		return err
	}
	plain := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO bench.plain (id, tenant, type, asset, content_type, payload) VALUES ($1, $2, $3, $4, $5, $6)",
			"evt_"+uuid.Must(uuid.NewV7()).String(), tenant(0), "asset.updated", fmt.Sprintf("asset-%d", serial.Add(1)%100_000), "application/json", body)
		return err
	}
	ours := func(ctx context.Context, tx pgx.Tx) error {
		_, err := delivery.Enqueue(ctx, tx, delivery.Event{
			Tenant: tenant(0), Type: "asset.updated", Asset: fmt.Sprintf("asset-%d", serial.Add(1)%100_000), Payload: body,
		})
		return err
	}
	ratios, plains, enqueues := map[string]float64{}, map[string]int64{}, map[string]int64{}
	var used [2]cost
	var done [2]int
	total := cmp.Or(r.Duration, 12*time.Second)
	for _, connections := range []int{1, 8, 32} {
		var rates [2]float64
		const slices = 4
		for slice := range slices * 2 {
			which := slice % 2
			work := []func(context.Context, pgx.Tx) error{plain, ours}[which]
			before, err := r.cost(ctx)
			if err != nil {
				return nil, err
			}
			n, rate, err := r.commits(ctx, connections, total/slices/2, func(tx pgx.Tx) error {
				return errors.Join(business(ctx, tx), work(ctx, tx))
			})
			if err != nil {
				return nil, err
			}
			after, err := r.cost(ctx)
			if err != nil {
				return nil, err
			}
			rates[which] += rate / slices
			done[which] += n
			used[which].add(after, before)
		}
		key := fmt.Sprint(connections)
		ratios[key], plains[key], enqueues[key] = ratio(rates[1], rates[0]), round(rates[0]), round(rates[1])
		r.logf("%2d connections: plain %d/s, enqueue %d/s", connections, plains[key], enqueues[key])
	}
	return map[string]any{
		"ratios": ratios, "plain_per_s": plains, "enqueue_per_s": enqueues, "payload_bytes": len(body),
		"per_plain": used[0].per(cost{}, done[0]), "per_enqueue": used[1].per(cost{}, done[1]),
	}, nil
}

// commits returns how many transactions so many connections make, and the rate.
func (r *run) commits(ctx context.Context, connections int, d time.Duration, work func(pgx.Tx) error) (n int, rate float64, err error) {
	var group sync.WaitGroup
	var done atomic.Int64
	errs := make([]error, connections)
	begin := time.Now()
	for c := range connections {
		group.Go(func() {
			for time.Since(begin) < d && ctx.Err() == nil {
				if err := pgx.BeginFunc(ctx, r.pool, work); err != nil {
					errs[c] = err
					return
				}
				done.Add(1)
			}
		})
	}
	group.Wait()
	return int(done.Load()), float64(done.Load()) / time.Since(begin).Seconds(), errors.Join(errs...)
}
