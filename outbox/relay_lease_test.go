package outbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/postlane-go/postlane/outbox"
)

func TestLongPublishRenewsItsLease(t *testing.T) {
	inBubble(t, outbox.RelayConfig{PublishTimeout: time.Hour}, func(b *testBundle) {
		b.broker.slow = map[string]time.Duration{"long": 10 * outbox.DefaultLease}
		b.stage("q", "long", "next")
		stop := b.run()
		defer stop()
		for range 10 {
			time.Sleep(outbox.DefaultLease)
			claims, err := b.memory.Claim(b.t.Context(), 10)
			b.is.NoErr(err)
			b.is.Equal(len(claims), 0)
		}
		time.Sleep(time.Second)
		b.is.Equal(b.broker.received(), []string{"long", "next"})
		b.is.Equal(b.Stats(), outbox.Stats{Published: 2})
	})
}

// A renewal that is on the wire while the part settles is answered "lost". That is
// no lost lease.
func TestCleanFinishIsNoLostLease(t *testing.T) {
	store := &troubled{}
	inBubble(t, outbox.RelayConfig{Store: store}, func(b *testBundle) {
		marked := make(chan struct{})
		store.renewed = func(renew func() error) error {
			<-marked // the request arrives when the message is settled
			err := renew()
			if !errors.Is(err, outbox.ErrLeaseLost) {
				b.t.Errorf("the store says %v", err)
			}
			return err
		}
		store.marked = func() {
			close(marked)
			time.Sleep(time.Second) // and is answered before the part is told
		}
		b.broker.slow = map[string]time.Duration{"m": outbox.DefaultLease / 2}
		b.stage("q", "m")
		b.is.Equal(b.tick(), 1)
		b.is.Equal(b.Stats(), outbox.Stats{Published: 1})
		b.is.Equal(b.logs.count("lost"), 0)
	})
}

func TestCutOffRelayStopsWhenItsLeaseMayBeOver(t *testing.T) {
	store := &troubled{}
	inBubble(t, outbox.RelayConfig{Store: store, PublishTimeout: time.Hour}, func(b *testBundle) {
		b.broker.slow = map[string]time.Duration{"m": time.Hour}
		b.stage("q", "m", "n")
		done := make(chan int)
		go func() { done <- b.tick() }()
		time.Sleep(time.Second)
		store.fail(errors.New("no route to host"))
		began := time.Now()
		b.is.Equal(<-done, 0)
		b.is.True(time.Since(began) <= outbox.DefaultLease)
		b.is.Equal(b.Stats().Lost, int64(2))
		store.fail(nil)
		b.is.Equal(b.broker.called(), []string{"m"}) // n was not begun
	})
}

func TestOutageIsSurvivedAndLoggedOnce(t *testing.T) {
	store := &troubled{}
	inBubble(t, outbox.RelayConfig{Store: store}, func(b *testBundle) {
		store.fail(errors.New("connection refused"))
		b.stage("q", "m")
		stop := b.run()
		defer stop()
		time.Sleep(time.Minute)
		b.is.True(b.Stats().StoreErrors > 30 && b.Stats().StoreErrors < 100) // at the pace of the poll
		b.is.Equal(b.logs.count("does not answer"), 1)
		store.fail(nil)
		time.Sleep(2 * time.Second)
		b.is.Equal(b.broker.received(), []string{"m"})
		b.is.Equal(b.logs.count("answers again"), 1)
	})
}

func TestPublishedIsMarkedAfterAnOutage(t *testing.T) {
	store := &troubled{}
	inBubble(t, outbox.RelayConfig{Store: store}, func(b *testBundle) {
		b.broker.all = time.Second
		b.stage("q", "m")
		done := make(chan int)
		go func() { done <- b.tick() }()
		time.Sleep(time.Second / 2)
		store.fail(errors.New("connection refused"))
		time.Sleep(10 * time.Second)
		store.fail(nil)
		b.is.Equal(<-done, 1)
		b.is.Equal(b.broker.called(), []string{"m"}) // once
	})
}

func TestStop(t *testing.T) {
	inBubble(t, outbox.RelayConfig{}, func(b *testBundle) {
		b.broker.all = time.Second
		b.stage("q", "m0", "m1", "m2")
		stop := b.run()
		time.Sleep(1500 * time.Millisecond) // in the middle of m1
		began := time.Now()
		stop()
		b.is.Equal(time.Since(began), 500*time.Millisecond)
		b.is.Equal(b.broker.received(), []string{"m0", "m1"})
		b.is.Equal(b.Stats(), outbox.Stats{Published: 2, Released: 1})
		claims, err := b.memory.Claim(b.t.Context(), 10)
		b.is.NoErr(err)
		b.is.Equal(len(claims), 1) // m2 was handed back
		b.is.Equal(claims[0].Attempt, 1)
		b.Stop() // again
		b.is.Equal(b.Run(b.t.Context()), outbox.ErrRunning)
	})
}

func TestStopBeforeRun(t *testing.T) {
	inBubble(t, outbox.RelayConfig{}, func(b *testBundle) {
		b.Stop()
		b.Stop()
		b.stage("q", "m")
		b.is.NoErr(b.Run(b.t.Context()))
		b.is.Equal(len(b.broker.called()), 0)
	})
}
