package receiver

import (
	"context"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// open sends requests that stay open until release, and returns once each has
// got as far as it can.
func (b *testBundle) open(t *testing.T, hooks ...hook) (release func()) {
	t.Helper()
	var wg sync.WaitGroup
	hold := make(chan struct{})
	b.behave(AnyPath, Behaviour{Hold: hold})
	for _, h := range hooks {
		wg.Go(func() { b.send(h) })
		synctest.Wait()
	}
	return func() {
		close(hold)
		b.behave(AnyPath, Behaviour{})
		wg.Wait()
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hooks []hook
		want  int64
	}{
		"one stream":          {[]hook{{seq: 1, asset: "a"}, {seq: 2, prev: 1, asset: "a"}}, 1},
		"no asset":            {[]hook{{seq: 1}, {seq: 2, prev: 1}}, 1},
		"the same event":      {[]hook{{seq: 1}, {seq: 1, attempt: 2}}, 1},
		"three":               {[]hook{{seq: 1}, {seq: 2, prev: 1}, {seq: 3, prev: 2}}, 2},
		"different assets":    {[]hook{{seq: 1, asset: "a"}, {seq: 2, asset: "b"}}, 0},
		"an asset and none":   {[]hook{{seq: 1, asset: "a"}, {seq: 2}}, 0},
		"different endpoints": {[]hook{{seq: 1, asset: "a"}, {seq: 2, asset: "a", path: "/other"}}, 0},
		"one alone":           {[]hook{{seq: 1}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, Config{})
				release := b.open(t, test.hooks...)
				b.is.Equal(b.Verdict().Open, int64(len(test.hooks)))
				time.Sleep(noticed) // of the bubble's clock
				synctest.Wait()
				b.is.Equal(b.Verdict().Overlaps, test.want)
				release()
				v := b.Verdict()
				b.is.Equal(v.Overlaps, test.want)
				b.is.Equal(v.Problems(), test.want)
				b.is.Equal(v.Open, int64(0))
			})
		})
	}
}

func TestNoOverlapOneAfterTheOther(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	b.send(hook{seq: 1})
	b.send(hook{seq: 2, prev: 1})
	b.is.Equal(b.Verdict().Overlaps, int64(0))
}

// A refused request was open all the same.
func TestOverlapOfARefusedRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, Config{Secrets: map[string][]string{AnyPath: {secretA}}})
		release := b.open(t, hook{seq: 1, secret: secretA}, hook{seq: 2, prev: 1, secret: secretB})
		release()
		v := b.Verdict()
		b.is.Equal(v.Overlaps, int64(1))
		b.is.Equal(v.BadSignatures, int64(1))
	})
}

// A request that is answered was truly open, however soon.
func TestOverlapWithARequestAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, Config{})
		release := b.open(t, hook{seq: 1}, hook{seq: 2, prev: 1})
		release()
		b.is.Equal(b.Verdict().Overlaps, int64(1))
	})
}

// A sender may hang up and send again before this end has noticed.
func TestOverlapWithAHungUpRequest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		after time.Duration
		want  int64
	}{
		"noticed soon":   {noticed - 1, 0},
		"truly together": {noticed + 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, Config{})
				b.behave(AnyPath, Behaviour{Hold: make(chan struct{})})
				ctx, hangUp := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() { b.ServeHTTP(httptest.NewRecorder(), hook{seq: 1}.request().WithContext(ctx)) })
				synctest.Wait()
				b.behave(AnyPath, Behaviour{})
				wg.Go(func() { b.send(hook{seq: 1, attempt: 2}) })
				synctest.Wait()
				time.Sleep(test.after)
				hangUp()
				wg.Wait()
				v := b.Verdict()
				b.is.Equal(v.Overlaps, test.want)
				b.is.Equal(v.Abandoned, int64(1))
				b.is.Equal(v.Duplicates, int64(1))
				b.is.Equal(v.Redelivered, int64(0)) // it was never answered
				for i := range b.streams.shards {
					b.is.Equal(len(b.streams.shards[i].witness), 0)
				}
			})
		})
	}
}
