package receiver

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"
)

// A sender that keeps every promise is found to, by many requests at once.
func TestManyStreamsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Secrets: map[string][]string{"/0": {secretA}}, Behaviour: Behaviour{FailFirst: 50}})
	arrivals, stop := b.Arrivals(16)
	var reader, wg sync.WaitGroup
	var seen int
	done := make(chan struct{})
	reader.Go(func() {
		for {
			select {
			case <-arrivals:
				seen++
			case <-done:
				return
			}
		}
	})
	const streams, depth = 64, 50
	for i := range streams {
		wg.Go(func() {
			h := hook{path: fmt.Sprint("/", i%4), asset: fmt.Sprint("asset-", i/4), secret: secretA}
			for seq := int64(1); seq <= depth; seq++ {
				h.seq, h.prev, h.id = seq, seq-1, fmt.Sprint(h.asset, "-", seq)
				for h.attempt = 1; b.send(h) != 200; h.attempt++ {
				}
			}
		})
	}
	for range 20 { // readers and writers of everything else
		wg.Go(func() {
			_ = b.Verdict()
			_ = b.SetSecrets("/0", secretB, secretA)
			_ = b.Lost(map[string][]string{"/0": {"asset-0-1"}})
		})
	}
	wg.Wait()
	stop()
	close(done)
	reader.Wait()
	v := b.Verdict()
	b.is.True(v.OK())
	b.is.Equal(v.Events, int64(streams*depth))
	b.is.Equal(v.Accepted, int64(streams*depth))
	b.is.Equal(v.Streams, int64(streams))
	b.is.Equal(v.Duplicates, int64(4*50))
	b.is.Equal(v.Redelivered, int64(0))
	b.is.Equal(int64(seen+len(arrivals)), v.Requests)
}

// A sender that opens a stream twice, and one that swaps, are found out of a
// crowd of correct ones.
func TestOneFaultAmongMany(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			asset := fmt.Sprint("asset-", i)
			order := []int64{1, 2, 3, 4, 5, 6}
			if i == 17 {
				order[3], order[4] = order[4], order[3]
			}
			for _, seq := range order {
				b.send(hook{asset: asset, id: fmt.Sprint(asset, seq), seq: seq, prev: seq - 1})
			}
		})
	}
	wg.Wait()
	v := b.Verdict()
	b.is.Equal(v.OutOfOrder, int64(1))
	b.is.Equal(v.Gaps, int64(1))
	b.is.Equal(v.Problems(), int64(2))
	for _, text := range v.Examples {
		b.is.True(strings.Contains(text, " asset=asset-17 "))
	}
}

// 1,000,000 events, each in a stream of its own, fit.
//
// It reads the heap, so nothing may run beside it: not parallel.
//
//nolint:paralleltest // as said
func TestMemoryOfAMillionEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("a million events")
	}
	is := is.New(t)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	r, err := New(Config{})
	is.NoErr(err)
	before := heap()
	for range 1_000_000 {
		event, stream := rand.Uint64(), rand.Uint64()
		ticket, _ := r.streams.enter(stream)
		r.events.arrive(event, rand.Uint64())
		r.streams.arrive(stream, 1, 0, true, false)
		r.events.accept(event)
		r.streams.leave(stream, ticket, false)
	}
	used := heap() - before
	t.Logf("%d MB", used>>20)
	is.True(used < 100<<20)
	runtime.KeepAlive(r)
}
