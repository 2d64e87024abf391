package bench

import (
	"cmp"
	"context"
	"time"
)

// latency measures from a commit in this process to the arrival of the request that a
// server, another process, makes of it.
func latency(ctx context.Context, r *run) (map[string]any, error) {
	duration := cmp.Or(r.Duration, 30*time.Second)
	a, err := r.watchArrivals()
	if err != nil {
		return nil, err
	}
	if _, err := r.subscribe(ctx, 1, a.url); err != nil {
		return nil, err
	}
	if _, err := r.serve(ctx, []*database{r.database}); err != nil {
		return nil, err
	}
	idle, by, err := r.statementRate(ctx, min(duration, 10*time.Second))
	if err != nil {
		return nil, err
	}
	if _, err := r.trickle(ctx, a, time.Second); err != nil { // connections, plans
		return nil, err
	}
	list, err := r.trickle(ctx, a, duration)
	if err != nil {
		return nil, err
	}
	n := len(list) + trickleRate
	if err := r.awaitDelivered(ctx, n); err != nil {
		return nil, err
	}
	if err := r.check(ctx, n); err != nil {
		return nil, err
	}
	return map[string]any{
		"p50_ms": list.ms(50), "p99_ms": list.ms(99), "max_ms": list.ms(100), "events": len(list), "events_per_s": trickleRate,
		"idle_statements_per_s": idle, "statements_counted_by": by, "payload_bytes": len(body),
	}, nil
}
