package bench

import (
	"context"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery/sender"
)

func TestFigures(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(median([]float64{9, 1, 5}), 5.0)
	is.Equal(median([]float64{9, 1, 5, 3}), 4.0) // between the two in the middle
	is.Equal(ratio(2, 3), 0.667)
	is.Equal(ratio(1, 0), 0.0) // and not infinite, which JSON has no word for

	list := make(latencies, 200)
	for i := range list {
		list[i] = time.Duration(i+1) * time.Millisecond
	}
	is.Equal(list.ms(50), 100.0)
	is.Equal(list.ms(99), 198.0)
	is.Equal(list.ms(100), 200.0)
	is.Equal(list[:1].ms(50), 1.0)

	is.Equal(window(90*time.Second), 10*time.Second)
	is.Equal(window(9*time.Second), 3*time.Second) // the beginning and the end stay apart
	is.Equal(streamsOf(100, 0), 100)
	is.Equal(streamsOf(100, 7), 7)
	is.Equal(streamsOf(100, 200), 100)
}

// sending calls f for each request, and delivers it.
type sending func()

func (sending) Timeout() time.Duration { return time.Second }

func (f sending) Send(context.Context, sender.Request) sender.Result {
	f()
	return sender.Result{Outcome: sender.Delivered}
}

func TestAStreamOutOfOrderIsSeen(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	request := func(seq, prev int64) sender.Request { return sender.Request{StreamSeq: seq, StreamPrev: prev} }

	s := &oneStream{Sender: sending(func() {})}
	s.Send(t.Context(), request(3, 0))
	s.Send(t.Context(), request(5, 3))
	is.Equal(s.broken.Load(), int64(0))
	s.Send(t.Context(), request(9, 7)) // 7 is missing
	is.Equal(s.broken.Load(), int64(1))
	s.Send(t.Context(), request(8, 9)) // goes back
	is.Equal(s.broken.Load(), int64(2))

	inner := false
	s = &oneStream{}
	s.Sender = sending(func() {
		if !inner {
			inner = true
			s.Send(t.Context(), request(5, 3)) // beside the one that is open
		}
	})
	s.Send(t.Context(), request(3, 0))
	is.Equal(s.broken.Load(), int64(1))
}
