package receiver

import (
	"slices"
	"sync"
)

// stream is what is known of one: 16 bytes without a pointer.
type stream struct {
	last int64 // highest seq that arrived, 0 if none
	open int32 // requests
}

// streams are judged under their shard's lock, which no request holds while it
// does anything else.
type streams struct {
	shards [tableShards]streamShard
}

type streamShard struct {
	mu      sync.Mutex
	m       map[uint64]stream
	tickets uint64                // requests that entered
	witness map[uint64][]*witness // requests that found their stream open: rarely any
	_       [32]byte
}

func (t *streams) shard(key uint64) *streamShard { return &t.shards[key%tableShards] }

// enter opens a request in a stream, under a ticket that grows. If others were
// open, it returns a witness to ask whether that is an overlap.
func (t *streams) enter(key uint64) (ticket uint64, w *witness) {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = make(map[uint64]stream)
	}
	s.tickets++
	v := s.m[key]
	if v.open > 0 {
		w = newWitness(s.tickets, v.open)
		if s.witness == nil {
			s.witness = make(map[uint64][]*witness)
		}
		s.witness[key] = append(s.witness[key], w)
	}
	v.open++
	s.m[key] = v
	return s.tickets, w
}

// leave closes a request. A stream in which nothing ever arrived is forgotten,
// so refused requests cost no memory.
func (t *streams) leave(key, ticket uint64, hungUp bool) {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.witness[key] {
		w.left(ticket, hungUp)
	}
	v := s.m[key]
	v.open--
	if v.open == 0 && v.last == 0 {
		delete(s.m, key)
		return
	}
	s.m[key] = v
}

// overlaps waits for the witness's answer.
func (t *streams) overlaps(key uint64, w *witness) bool {
	overlap := w.wait()
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := slices.DeleteFunc(s.witness[key], func(x *witness) bool { return x == w })
	if len(rest) == 0 {
		delete(s.witness, key)
	} else {
		s.witness[key] = rest
	}
	return overlap
}

// arrive judges the first arrival of an event. It returns the highest seq that
// arrived before it, 0 if it is the stream's first.
//
// A late arrival is out of order and nothing else: it does not move the stream
// back, so that the arrivals after it are judged as if it had been in time.
func (t *streams) arrive(key uint64, seq, prev int64, prevOK, midStream bool) (f Finding, before int64) {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.m[key]
	before = v.last
	if before != 0 && seq <= before {
		return OutOfOrder, before
	}
	if prevOK && prev != before && (before != 0 || !midStream) {
		f = Gap
	}
	v.last = seq
	s.m[key] = v
	return f, before
}
