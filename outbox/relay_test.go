package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/outbox"
)

func TestOrderHoldsWithinAQueue(t *testing.T) {
	inBubble(t, outbox.RelayConfig{Batch: 7}, func(b *testBundle) {
		b.broker.all = time.Millisecond
		want := map[string][]string{}
		for _, queue := range []string{"a", "b", "c"} {
			for i := range 20 {
				want[queue] = append(want[queue], fmt.Sprint(queue, i))
			}
			b.stage(queue, want[queue]...)
		}
		stop := b.run()
		time.Sleep(time.Minute)
		stop()
		got := map[string][]string{}
		for _, id := range b.broker.received() {
			got[id[:1]] = append(got[id[:1]], id)
		}
		b.is.Equal(got, want)
		b.is.Equal(b.broker.faults, nil)
		b.is.Equal(b.Stats(), outbox.Stats{Published: 60})
		b.is.Equal(b.memory.Retained(), 0)
	})
}

func TestFailedPublishHandsTheRestBack(t *testing.T) {
	inBubble(t, outbox.RelayConfig{}, func(b *testBundle) {
		b.stage("q", "q0", "q1", "q2", "q3")
		b.stage("r", "r0", "r1")
		b.broker.set(map[string]error{"q1": errors.New("refused")})
		b.is.Equal(b.tick(), 3) // q0, r0, r1
		b.is.Equal(b.Stats(), outbox.Stats{Published: 3, Failed: 1, Released: 2})
		b.is.Equal(b.pending(), outbox.Backlog{Pending: 3, Waiting: 1})
		b.is.Equal(b.tick(), 0) // q2 may not pass q1

		b.broker.set(nil)
		time.Sleep(time.Second)
		b.is.Equal(b.tick(), 3)
		b.is.Equal(b.broker.received()[3:], []string{"q1", "q2", "q3"})
	})
}

func TestBC15_BadMessageIsParkedAndOthersGoOn(t *testing.T) {
	inBubble(t, outbox.RelayConfig{Exhausted: outbox.Park, Backoff: func(int) time.Duration { return time.Second }}, func(b *testBundle) {
		b.stage("a", "good1")
		tx, err := b.memory.Begin(b.t.Context())
		b.is.NoErr(err)
		_, err = b.memory.Stage(b.t.Context(), tx, outbox.Message{ID: "bad", Topic: "t", Queue: "b", MaxAttempts: 3})
		b.is.NoErr(err)
		b.is.NoErr(tx.Commit(b.t.Context()))
		b.stage("b", "behind")
		b.stage("c", "good2")
		b.stage("d", "hopeless", "behind hopeless")
		b.broker.set(map[string]error{"bad": errors.New("refused"), "hopeless": outbox.Permanent(errors.New("no such topic"))})

		b.is.Equal(b.tick(), 3) // the good ones, and what stood behind the hopeless
		b.is.Equal(b.pending(), outbox.Backlog{Pending: 2, Waiting: 1, Parked: 1})
		for range 9 {
			time.Sleep(time.Second)
			b.tick()
		}
		b.is.Equal(b.pending(), outbox.Backlog{Parked: 2})
		b.is.Equal(b.Stats(), outbox.Stats{Published: 4, Failed: 4, Parked: 2, Released: 2})

		b.broker.set(nil) // mended
		retried, err := b.memory.Retry(b.t.Context(), "bad", "hopeless")
		b.is.NoErr(err)
		b.is.Equal(len(retried), 2)
		b.is.Equal(b.tick(), 2)
		b.is.Equal(b.memory.Retained(), 0)
	})
}

func TestWedgeIsTheDefaultAndSeen(t *testing.T) {
	inBubble(t, outbox.RelayConfig{Backoff: func(int) time.Duration { return time.Second }}, func(b *testBundle) {
		b.stage("q", "bad", "behind")
		b.broker.set(map[string]error{"bad": outbox.Permanent(errors.New("never"))})
		for range 50 {
			b.tick()
			time.Sleep(time.Second)
		}
		b.tick()
		b.is.Equal(b.pending().Parked, int64(0))
		b.is.Equal(b.pending().Waiting, int64(1))
		b.is.Equal(b.Stats().Failed, int64(51))
		b.broker.set(nil)
		time.Sleep(time.Second)
		b.is.Equal(b.tick(), 2)
	})
}

func TestBC16_RefusedMessageIsNotHammered(t *testing.T) {
	inBubble(t, outbox.RelayConfig{Batch: 10}, func(b *testBundle) {
		for i := range 10 {
			b.stage(fmt.Sprint("q", i), fmt.Sprint("m", i))
		}
		b.broker.set(map[string]error{"m3": errors.New("refused")})
		stop := b.run()
		defer stop()
		time.Sleep(5 * time.Second)
		b.broker.set(nil)
		time.Sleep(15 * time.Second)
		calls := map[string]int{}
		for _, id := range b.broker.called() {
			calls[id]++
		}
		b.is.True(calls["m3"] >= 2 && calls["m3"] <= 6)
		delete(calls, "m3")
		for id, n := range calls {
			if n != 1 {
				b.t.Errorf("%s was published %d times", id, n)
			}
		}
		b.is.Equal(b.memory.Retained(), 0)
	})
}

func TestHangingQueueStopsNoOther(t *testing.T) {
	inBubble(t, outbox.RelayConfig{Batch: 10}, func(b *testBundle) {
		b.broker.slow = map[string]time.Duration{"h0": time.Hour}
		b.stage("hangs", "h0", "h1")
		stop := b.run()
		defer stop()
		time.Sleep(time.Second)
		for i := range 100 {
			b.stage(fmt.Sprint("q", i), fmt.Sprint("m", i))
		}
		time.Sleep(2 * time.Second) // polls
		b.is.Equal(len(b.broker.received()), 100)
		time.Sleep(30 * time.Second)
		b.is.Equal(b.Stats().Failed, int64(1)) // by PublishTimeout
		b.is.Equal(b.Stats().Lost, int64(0))
	})
}

func TestPanickingPublisherIsAFailure(t *testing.T) {
	panics := outbox.PublisherFunc(func(context.Context, outbox.Message) error { panic("boom") })
	inBubble(t, outbox.RelayConfig{Publisher: panics}, func(b *testBundle) {
		b.stage("q", "m")
		b.is.Equal(b.tick(), 0)
		b.is.Equal(b.Stats(), outbox.Stats{Failed: 1})
		b.is.Equal(b.logs.count("boom"), 1)
	})
}

// batches publishes in batches, up to a message that it refuses.
type batches struct {
	broker
	sizes  []int
	broken bool
}

func (p *batches) PublishBatch(ctx context.Context, messages []outbox.Message) (int, error) {
	p.sizes = append(p.sizes, len(messages))
	for i, m := range messages {
		if err := p.Publish(ctx, m); err != nil {
			if p.broken {
				return i, nil
			}
			return i, err
		}
	}
	return len(messages), nil
}

func TestBatchPublisher(t *testing.T) {
	publisher := &batches{}
	inBubble(t, outbox.RelayConfig{Publisher: publisher}, func(b *testBundle) {
		b.stage("q", "m0", "m1", "m2", "m3")
		publisher.set(map[string]error{"m2": errors.New("refused")})
		b.is.Equal(b.tick(), 2)
		b.is.Equal(b.Stats(), outbox.Stats{Published: 2, Failed: 1, Released: 1})
		publisher.broken = true
		time.Sleep(time.Minute)
		b.is.Equal(b.tick(), 0) // what it says makes no sense, so nothing of it counts
		publisher.set(nil)
		time.Sleep(time.Minute)
		b.is.Equal(b.tick(), 2)
		b.is.Equal(publisher.sizes, []int{4, 2, 2})
	})
}

func TestRelayConfigIsChecked(t *testing.T) {
	t.Parallel()
	store, err := outbox.NewMemory(outbox.StoreConfig{})
	is.New(t).NoErr(err)
	for _, config := range []outbox.RelayConfig{
		{}, {Store: store}, {Publisher: &broker{}},
		{Store: store, Publisher: &broker{}, Poll: -1},
		{Store: store, Publisher: &broker{}, Exhausted: 7},
		{Store: store, Publisher: &broker{}, Wake: make(chan struct{}), Listen: &pgx.ConnConfig{}},
	} {
		_, err := outbox.NewRelay(config)
		is.New(t).True(err != nil)
	}
}
