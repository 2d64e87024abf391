package receiver

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
)

// endpoint is one path: what it was told, and what arrived at it.
type endpoint struct {
	path string
	salt uint64 // sets its keys in the shared tables apart from other paths'

	keys   atomic.Pointer[keyring] // nil: those of AnyPath
	script atomic.Pointer[script]

	counters
}

// key is the place of an id or an asset of this endpoint in a shared table.
func (e *endpoint) key(hash uint64) uint64 { return mix(e.salt, hash) }

// mix folds two hashes into one (the multiplication of wyhash). With 64 bits,
// a million keys meet by chance once in 37 million runs.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xe7037ed1a0b428db)
	return hi ^ lo
}

const endpointShards = 32

// endpoints are all paths ever named or requested. They are sharded because
// every request looks its path up, and looks are many where there are 20,000
// subscriptions.
type endpoints struct {
	seed   maphash.Seed
	shards [endpointShards]struct {
		mu sync.RWMutex
		m  map[string]*endpoint
		_  [64]byte
	}
}

// get returns the endpoint of a path, made at its first use.
func (t *endpoints) get(path string) *endpoint {
	hash := maphash.String(t.seed, path)
	s := &t.shards[hash%endpointShards]
	s.mu.RLock()
	e := s.m[path]
	s.mu.RUnlock()
	if e != nil {
		return e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e = s.m[path]; e != nil {
		return e
	}
	if s.m == nil {
		s.m = make(map[string]*endpoint)
	}
	path = strings.Clone(path) // the request's holds its whole request line
	e = &endpoint{path: path, salt: hash}
	s.m[path] = e
	return e
}

// look returns the endpoint of a path, or nil.
func (t *endpoints) look(path string) *endpoint {
	s := &t.shards[maphash.String(t.seed, path)%endpointShards]
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.m[path]
}

// all returns every endpoint, in no order.
func (t *endpoints) all() []*endpoint {
	var all []*endpoint
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		for _, e := range s.m {
			all = append(all, e)
		}
		s.mu.RUnlock()
	}
	return all
}

func checkPath(path string) error {
	if path != AnyPath && !strings.HasPrefix(path, "/") {
		return fmt.Errorf("receiver: path %q must begin with /, or be AnyPath", path)
	}
	return nil
}
