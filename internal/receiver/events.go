package receiver

import "sync"

const tableShards = 64

// events is every event that arrived: the hash of its path and id, and a
// fingerprint of what came with it, in 16 bytes that hold no pointer for the
// garbage collector to follow.
type events struct {
	shards [tableShards]struct {
		mu sync.Mutex
		m  map[uint64]uint64
		_  [48]byte
	}
}

// accepted is the bit of a fingerprint that says the event was answered 2xx.
const accepted = 1

// arrive records an event and tells what is known of it.
func (t *events) arrive(key, fingerprint uint64) (f Finding) {
	s := &t.shards[key%tableShards]
	fingerprint &^= accepted
	s.mu.Lock()
	defer s.mu.Unlock()
	before, ok := s.m[key]
	if !ok {
		if s.m == nil {
			s.m = make(map[uint64]uint64)
		}
		s.m[key] = fingerprint
		return 0
	}
	f = Duplicate
	if before&accepted != 0 {
		f |= Redelivered
	}
	if before&^accepted != fingerprint {
		f |= Conflicting
	}
	return f
}

// accept records that an event was answered 2xx, and reports whether it is for
// the first time.
func (t *events) accept(key uint64) bool {
	s := &t.shards[key%tableShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.m[key]
	s.m[key] = v | accepted
	return v&accepted == 0
}

// state tells whether an event arrived, and whether it was answered 2xx.
func (t *events) state(key uint64) (arrived, answered bool) {
	s := &t.shards[key%tableShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.m[key]
	return ok, v&accepted != 0
}
