package bench

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/delivery/signing"
)

const throughputSubscriptions = 100

func throughput(ctx context.Context, r *run) (map[string]any, error) {
	n := cmp.Or(r.N, 200_000)
	if r.N == 0 && r.Delay > 0 {
		n = 100_000
	}
	inFlight := 256
	if r.Delay > 0 {
		inFlight = 2048
	}
	endpoint, err := r.receive(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.subscribe(ctx, throughputSubscriptions, endpoint); err != nil {
		return nil, err
	}
	r.logf("enqueueing %d events", n)
	if err := r.load(ctx, n, throughputSubscriptions, func(i int) string { return fmt.Sprintf("asset-%d", i) }); err != nil {
		return nil, err
	}
	before, err := r.raw(ctx, endpoint, inFlight)
	if err != nil {
		return nil, err
	}
	begun, err := r.cost(ctx)
	if err != nil {
		return nil, err
	}
	rate, err := r.drain(ctx, n, inFlight)
	if err != nil {
		return nil, err
	}
	ended, err := r.cost(ctx)
	if err != nil {
		return nil, err
	}
	after, err := r.raw(ctx, endpoint, inFlight)
	if err != nil {
		return nil, err
	}
	raw := (before + after) / 2
	return map[string]any{
		"deliveries_per_s": round(rate), "raw_http_per_s": round(raw), "ratio": ratio(rate, raw),
		"per_delivery": ended.per(begun, n),
		"n":            n, "subscriptions": throughputSubscriptions, "in_flight": inFlight, "delay_ms": r.Delay.Milliseconds(), "payload_bytes": len(body),
	}, nil
}

// load enqueues n events, one delivery each, spread over the subscriptions.
func (r *run) load(ctx context.Context, n, subscriptions int, asset func(int) string) error {
	const batch = 1000
	for from := 0; from < n; from += batch {
		events := make([]delivery.Event, 0, batch)
		for i := from; i < min(from+batch, n); i++ {
			events = append(events, delivery.Event{Tenant: tenant(i % subscriptions), Type: "asset.updated", Asset: asset(i), Payload: body})
		}
		err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
			_, err := delivery.Enqueue(ctx, tx, events...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// drain runs one dispatcher until n deliveries are settled, and returns their rate.
func (r *run) drain(ctx context.Context, n, inFlight int) (float64, error) {
	var settled, failed, claims, claimed, spent, empty atomic.Int64
	defer func() {
		r.logf("claims %d empty %d rows/claim %d avg %v total %v", claims.Load(), empty.Load(), claimed.Load()/max(claims.Load(), 1), time.Duration(spent.Load()/max(claims.Load(), 1)), time.Duration(spent.Load()))
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var end time.Time
	d, err := delivery.New(delivery.Config{
		Store: r.store, Sender: r.sender, MaxInFlight: inFlight, Logger: slog.New(slog.NewTextHandler(r.Log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Observer: delivery.Observer{Claimed: func(n int, took time.Duration) {
			claims.Add(1)
			claimed.Add(int64(n))
			spent.Add(int64(took))
			if n == 0 {
				empty.Add(1)
			}
		}, Settled: func(o delivery.Observation) {
			if o.State != delivery.SettledDelivered {
				failed.Add(1)
			} else if settled.Add(1) == int64(n) {
				end = time.Now()
				cancel()
			}
		}},
	})
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := d.Run(ctx); err != nil {
		return 0, err
	}
	if got := settled.Load(); got < int64(n) {
		return 0, fmt.Errorf("%d of %d deliveries were delivered, %d attempts failed", got, n, failed.Load())
	}
	return float64(n) / end.Sub(begin).Seconds(), nil
}

// raw sends the same signed POSTs with no database, and returns their rate.
func (r *run) raw(ctx context.Context, endpoint string, inFlight int) (float64, error) {
	secret, err := signing.Generate(0)
	if err != nil {
		return 0, err
	}
	var sent, failed atomic.Int64
	var group sync.WaitGroup
	duration := cmp.Or(r.Duration, 4*time.Second)
	begin := time.Now()
	workers := inFlight
	if r.Delay == 0 {
		workers = min(inFlight, 64)
	}
	for w := range workers {
		group.Go(func() {
			request := sender.Request{
				URL: fmt.Sprintf("%s/%d", endpoint, w%throughputSubscriptions), EventType: "asset.updated", Asset: "asset-1", Attempt: 1, StreamSeq: 1,
				ContentType: "application/json", Body: body, Secrets: []signing.Secret{secret},
			}
			for i := 0; time.Since(begin) < duration && ctx.Err() == nil; i++ {
				request.EventID = fmt.Sprintf("evt_01a227dd-8762-7ded-be7b-%06d%06d", w, i)
				if result := r.sender.Send(ctx, request); result.Delivered() {
					sent.Add(1)
				} else {
					failed.Add(1)
				}
			}
		})
	}
	group.Wait()
	if failed.Load() > 0 {
		return 0, fmt.Errorf("%d of %d plain requests failed", failed.Load(), sent.Load()+failed.Load())
	}
	return float64(sent.Load()) / time.Since(begin).Seconds(), ctx.Err()
}

func round(f float64) int64 { return int64(f + 0.5) }

// ratio is a over b to three decimals.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return float64(int64(a/b*1000+0.5)) / 1000
}
