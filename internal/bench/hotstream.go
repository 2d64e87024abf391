package bench

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
)

// hotStream delivers one stream, and compares with a client that sends one request after
// another without a database, before and after.
func hotStream(ctx context.Context, r *run) (map[string]any, error) {
	n := cmp.Or(r.N, 20_000)
	duration := cmp.Or(r.Duration, 5*time.Second)
	endpoint, err := r.receive(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := r.subscribe(ctx, 1, endpoint); err != nil {
		return nil, err
	}
	r.logf("enqueueing %d events of one stream", n)
	if err := r.load(ctx, n, 1, func(int) string { return "hot" }); err != nil {
		return nil, err
	}
	before, sentBefore, err := r.raw(ctx, endpoint, 1, duration)
	if err != nil {
		return nil, err
	}
	begun, err := r.cost(ctx)
	if err != nil {
		return nil, err
	}
	watch := &oneStream{Sender: r.sender}
	rate, err := r.drain(ctx, r.database, n, delivery.Config{Sender: watch})
	if err != nil {
		return nil, err
	}
	ended, err := r.cost(ctx)
	if err != nil {
		return nil, err
	}
	after, sentAfter, err := r.raw(ctx, endpoint, 1, duration)
	if err != nil {
		return nil, err
	}
	if broken := watch.broken.Load(); broken > 0 {
		return nil, fmt.Errorf("%d requests of the stream were out of order or beside another", broken)
	}
	if err := r.check(ctx, n); err != nil {
		return nil, err
	}
	if err := receivedAll(ctx, endpoint, n+sentBefore+sentAfter); err != nil {
		return nil, err
	}
	raw := (before + after) / 2
	r.logf("%.0f/s, a sequential client %.0f/s", rate, raw)
	return map[string]any{
		"ratio": ratio(rate, raw), "deliveries_per_s": round(rate), "sequential_per_s": round(raw),
		"per_delivery": ended.per(begun, n), "n": n, "delay_ms": r.Delay.Milliseconds(), "payload_bytes": len(body),
	}, nil
}

// oneStream is a sender that counts requests which break the order of the one stream that
// it sends, or open beside another.
type oneStream struct {
	delivery.Sender

	open         atomic.Int32
	last, broken atomic.Int64
}

func (s *oneStream) Send(ctx context.Context, r sender.Request) sender.Result {
	alone := s.open.Add(1) == 1
	defer s.open.Add(-1)
	if last := s.last.Swap(r.StreamSeq); !alone || r.StreamSeq <= last || r.StreamPrev != last {
		s.broken.Add(1)
	}
	return s.Sender.Send(ctx, r)
}
