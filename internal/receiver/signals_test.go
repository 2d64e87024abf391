package receiver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, Config{Behaviour: Behaviour{FailFirst: 1}})
		b.is.NoErr(b.WaitFor(t.Context(), 0))
		events, requests := make(chan error, 1), make(chan error, 1)
		go func() { events <- b.WaitFor(t.Context(), 2) }()
		go func() { requests <- b.WaitForRequests(t.Context(), 2) }()
		synctest.Wait()

		b.send(hook{seq: 1}) // fails
		synctest.Wait()
		b.is.Equal(len(requests), 0)
		b.send(hook{seq: 1}) // accepted
		synctest.Wait()
		b.is.Equal(len(requests), 1)
		b.send(hook{seq: 1}) // a duplicate is no second event
		synctest.Wait()
		b.is.Equal(len(events), 0)
		b.send(hook{seq: 2, prev: 1})
		synctest.Wait()
		b.is.Equal(len(events), 1)
		b.is.NoErr(<-events)
		b.is.NoErr(<-requests)
		b.is.NoErr(b.WaitFor(t.Context(), 2)) // at once
		b.is.Equal(len(b.accepted.waiting), 0)
		b.is.Equal(b.accepted.next.Load(), int64(0))
	})
}

func TestWaitForGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b.is.True(errors.Is(b.WaitFor(ctx, 1), context.DeadlineExceeded))
		b.is.Equal(len(b.accepted.waiting), 0)
	})
}

func TestArrivals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, Config{Secrets: map[string][]string{"/signed": {secretA}}})
		arrivals, stop := b.Arrivals(0)
		answered := make(chan int, 1)
		b.send(hook{path: "/signed"}) // refused: nobody is told
		go func() { answered <- b.send(hook{seq: 7}) }()
		synctest.Wait()
		b.is.Equal(len(answered), 0) // waits to be read
		b.is.Equal((<-arrivals).Seq, int64(7))
		b.is.Equal(<-answered, 200)

		go func() { answered <- b.send(hook{seq: 8, prev: 7}) }()
		synctest.Wait()
		b.behave(AnyPath, Behaviour{Status: 500}) // from the next request on
		stop()
		stop()
		b.is.Equal(<-answered, 200)
		b.is.Equal(b.send(hook{seq: 9, prev: 8}), 500)
		b.is.True(b.Verdict().Problems() == 1) // the refused one
	})
}
