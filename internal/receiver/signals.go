package receiver

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// ErrLight is returned where a receiver that only counts is asked for events.
var ErrLight = errors.New("receiver: a Light receiver knows requests, not events")

// WaitFor returns once n distinct events were answered 2xx, counted from the
// receiver's start, or with the error of ctx.
func (r *Receiver) WaitFor(ctx context.Context, n int64) error {
	if r.config.Light {
		return ErrLight
	}
	return r.accepted.wait(ctx, n)
}

// WaitForRequests returns once n requests have ended, whatever their answer,
// counted from the receiver's start, or with the error of ctx.
func (r *Receiver) WaitForRequests(ctx context.Context, n int64) error {
	return r.ended.wait(ctx, n)
}

// Arrivals subscribes to every request that is not refused, from the moment it
// is judged: a request that is then held can be waited for. A request waits
// until its Arrival fits into the buffer, so none is missed and a test can go
// step by step; whoever no longer reads calls stop, which may be called twice.
// The channel is not closed. A Light receiver sends nothing.
func (r *Receiver) Arrivals(buffer int) (arrivals <-chan Arrival, stop func()) {
	s := &subscriber{arrivals: make(chan Arrival, buffer), stopped: make(chan struct{})}
	r.subscribers.change(func(all []*subscriber) []*subscriber { return append(all, s) })
	return s.arrivals, sync.OnceFunc(func() {
		close(s.stopped)
		r.subscribers.change(func(all []*subscriber) []*subscriber {
			return slices.DeleteFunc(all, func(x *subscriber) bool { return x == s })
		})
	})
}

type subscriber struct {
	arrivals chan Arrival
	stopped  chan struct{}
}

// subscribers is read by every request and changed rarely: copy on write.
type subscribers struct {
	mu  sync.Mutex
	all atomic.Pointer[[]*subscriber]
}

func (s *subscribers) change(f func([]*subscriber) []*subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*subscriber
	if p := s.all.Load(); p != nil {
		all = slices.Clone(*p)
	}
	all = f(all)
	s.all.Store(&all)
}

func (s *subscribers) any() bool {
	p := s.all.Load()
	return p != nil && len(*p) > 0
}

func (s *subscribers) send(ctx context.Context, a Arrival) {
	p := s.all.Load()
	if p == nil {
		return
	}
	for _, x := range *p {
		select {
		case x.arrivals <- a:
		case <-x.stopped:
		case <-ctx.Done():
		}
	}
}

// gate is a count that can be waited for. Counting costs two atomic operations
// while nobody's target is reached.
type gate struct {
	n    atomic.Int64
	next atomic.Int64 // lowest target, 0 if none

	mu      sync.Mutex
	waiting map[chan struct{}]int64
}

func (g *gate) add() {
	n := g.n.Add(1)
	if next := g.next.Load(); next == 0 || n < next {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for ch, target := range g.waiting {
		if n >= target {
			close(ch)
			delete(g.waiting, ch)
		}
	}
	g.setNext()
}

func (g *gate) wait(ctx context.Context, target int64) error {
	g.mu.Lock()
	ch := make(chan struct{})
	if g.waiting == nil {
		g.waiting = make(map[chan struct{}]int64)
	}
	g.waiting[ch] = target
	g.setNext()
	g.mu.Unlock()

	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.waiting, ch)
		g.setNext()
	}()
	// Read after the target is visible: an add before this line is seen here,
	// one after it sees the target.
	if g.n.Load() >= target {
		return nil
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *gate) setNext() {
	next := int64(math.MaxInt64)
	for _, target := range g.waiting {
		next = min(next, target)
	}
	if next == math.MaxInt64 {
		next = 0
	}
	g.next.Store(next)
}
