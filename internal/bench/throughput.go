package bench

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/postlane-go/postlane/delivery"
)

const throughputSubscriptions = 100

// throughput delivers two backlogs, one of streams with many deliveries and one where each
// delivery is a stream of its own, and compares each with the rate of plain requests
// before and after.
func throughput(ctx context.Context, r *run) (map[string]any, error) {
	n := cmp.Or(r.N, 200_000)
	if r.N == 0 && r.Delay > 0 {
		n = 100_000
	}
	streams := min(cmp.Or(r.Streams, 1000), n)
	inFlight := 256
	if r.Delay > 0 {
		inFlight = 2048
	}
	endpoint, err := r.receive(ctx)
	if err != nil {
		return nil, err
	}
	deep, err := r.deliveryRate(ctx, endpoint, n, streams, inFlight)
	if err != nil {
		return nil, err
	}
	own, err := r.deliveryRate(ctx, endpoint, n, n, inFlight)
	if err != nil {
		return nil, err
	}
	deep["own_streams"] = own
	deep["n"], deep["subscriptions"], deep["in_flight"] = n, throughputSubscriptions, inFlight
	deep["delay_ms"], deep["payload_bytes"] = r.Delay.Milliseconds(), len(body)
	return deep, nil
}

// deliveryRate delivers n deliveries of so many streams, on a database of its own.
func (r *run) deliveryRate(ctx context.Context, endpoint string, n, streams, inFlight int) (map[string]any, error) {
	d, err := r.newDatabase(ctx, connections)
	if err != nil {
		return nil, err
	}
	if _, err := d.subscribe(ctx, throughputSubscriptions, endpoint); err != nil {
		return nil, err
	}
	r.logf("enqueueing %d events of %d streams", n, streams)
	// Delivery i is of subscription i % 100, so its asset may not depend on that.
	assets := max(streams/throughputSubscriptions, 1)
	if err := d.load(ctx, n, throughputSubscriptions, func(i int) string { return fmt.Sprintf("asset-%d", i/throughputSubscriptions%assets) }); err != nil {
		return nil, err
	}
	earlier, err := received(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	workers := inFlight
	if r.Delay == 0 {
		workers = min(inFlight, 64)
	}
	duration := cmp.Or(r.Duration, 4*time.Second)
	before, sentBefore, err := r.raw(ctx, endpoint, workers, duration)
	if err != nil {
		return nil, err
	}
	begun, err := d.cost(ctx)
	if err != nil {
		return nil, err
	}
	rate, err := r.drain(ctx, d, n, delivery.Config{MaxInFlight: inFlight})
	if err != nil {
		return nil, err
	}
	ended, err := d.cost(ctx)
	if err != nil {
		return nil, err
	}
	after, sentAfter, err := r.raw(ctx, endpoint, workers, duration)
	if err != nil {
		return nil, err
	}
	if err := d.check(ctx, n); err != nil {
		return nil, err
	}
	if err := receivedAll(ctx, endpoint, earlier+n+sentBefore+sentAfter); err != nil {
		return nil, err
	}
	raw := (before + after) / 2
	r.logf("%.0f/s, plain requests %.0f/s", rate, raw)
	return map[string]any{
		"deliveries_per_s": round(rate), "raw_http_per_s": round(raw), "ratio": ratio(rate, raw), "streams": assets * throughputSubscriptions,
		"per_delivery": ended.per(begun, n),
	}, nil
}
