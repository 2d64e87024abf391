package bench

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/postlane-go/postlane/delivery"
)

// neighbour measures the latency of a healthy subscription, alone and then beside one
// whose endpoint hangs while many deliveries of it are due, each a stream of its own.
func neighbour(ctx context.Context, r *run) (map[string]any, error) {
	n := cmp.Or(r.N, 100_000)
	duration := cmp.Or(r.Duration, 30*time.Second)
	a, err := r.watchArrivals()
	if err != nil {
		return nil, err
	}
	if _, err := r.subscribe(ctx, 1, a.url); err != nil {
		return nil, err
	}
	hung, _, err := r.store.CreateSubscription(ctx, "hangs", delivery.Settings{URL: a.url + hangPath})
	if err != nil {
		return nil, err
	}
	// A breaker would take the neighbour away as soon as its first requests time out.
	if _, err := r.serve(ctx, []*database{r.database}, "-no-breaker"); err != nil {
		return nil, err
	}
	if _, err := r.trickle(ctx, a, time.Second); err != nil { // connections, plans
		return nil, err
	}
	alone, err := r.trickle(ctx, a, duration)
	if err != nil {
		return nil, err
	}
	r.logf("alone: %.2f ms; loading %d deliveries to an endpoint that hangs", alone.ms(99), n)
	if err := r.addEvents(ctx, n); err != nil {
		return nil, err
	}
	if err := r.addDeliveries(ctx, n, []int64{int64(hung.ID)}, shape{subscriptions: 1, asset: "'asset-' || i"}); err != nil {
		return nil, err
	}
	if err := a.awaitHanging(ctx); err != nil {
		return nil, err
	}
	beside, err := r.trickle(ctx, a, duration)
	if err != nil {
		return nil, err
	}
	hanging := a.hanging.Load()
	if hanging == 0 {
		return nil, errors.New("no request hung at the end")
	}
	healthy := len(alone) + len(beside) + trickleRate
	if err := r.awaitDelivered(ctx, healthy); err != nil {
		return nil, err
	}
	var waiting, delivered int
	err = r.pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM postlane.deliveries WHERE subscription_id = $1), (SELECT count(*) FROM postlane.settled WHERE state = 'delivered')",
		int64(hung.ID)).Scan(&waiting, &delivered)
	if err != nil {
		return nil, err
	}
	if waiting != n || delivered != healthy {
		return nil, errors.New("not everything was delivered to the healthy endpoint, or something to the one that hangs")
	}
	return map[string]any{
		"p99_ms": beside.ms(99), "alone_p99_ms": alone.ms(99), "ratio": ratio(beside.ms(99), alone.ms(99)),
		"p50_ms": beside.ms(50), "alone_p50_ms": alone.ms(50), "p50_ratio": ratio(beside.ms(50), alone.ms(50)), "n": n, "hanging": hanging, "events": len(beside), "events_per_s": trickleRate, "payload_bytes": len(body),
	}, nil
}

// awaitHanging waits until as many requests hang as are let: no more come for a second.
func (a *arrivals) awaitHanging(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < 30*time.Second; {
		before := a.hanging.Load()
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		if before > 0 && a.hanging.Load() == before {
			return nil
		}
	}
	return errors.New("no requests hang at the endpoint that should")
}
