package verify

import (
	"cmp"
	"container/list"
	"context"
	"sync"
)

// MemoryConfig bounds a Memory. The zero value works.
type MemoryConfig struct {
	// MaxEvents is how many events are remembered: the last ones. One costs some 200
	// bytes. Default: 100,000.
	MaxEvents int
	// MaxStreams is of how many streams the place is remembered: those that something
	// was handled of last. Default: 100,000.
	MaxStreams int
}

// Memory is a Store in the memory of the process: enough for one process whose handlers
// may do a thing twice after a restart.
type Memory struct {
	mu      sync.Mutex
	events  recent[State]
	streams recent[int64]
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty Memory.
func NewMemory(config MemoryConfig) *Memory {
	return &Memory{
		events:  newRecent[State](cmp.Or(max(config.MaxEvents, 0), 100_000)),
		streams: newRecent[int64](cmp.Or(max(config.MaxStreams, 0), 100_000)),
	}
}

// Begin is Store.Begin. It never fails.
func (m *Memory) Begin(_ context.Context, d *Delivery) (Known, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, _ := m.streams.get(key{d.Scope, d.Asset})
	state, known := m.events.get(key{d.Scope, d.ID})
	if !known {
		m.events.put(key{d.Scope, d.ID}, Handling)
	}
	return Known{State: state, Last: last}, nil
}

// End is Store.End. It never fails.
func (m *Memory) End(_ context.Context, d *Delivery, handled bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !handled {
		m.events.remove(key{d.Scope, d.ID})
		return nil
	}
	m.events.put(key{d.Scope, d.ID}, Handled)
	if d.StreamSeq > 0 {
		stream := key{d.Scope, d.Asset}
		last, _ := m.streams.get(stream)
		m.streams.put(stream, max(last, d.StreamSeq))
	}
	return nil
}

type key struct{ scope, name string }

// recent is a map that forgets what was put longest ago.
type recent[V any] struct {
	most  int
	order *list.List
	at    map[key]*list.Element
}

type entry[V any] struct {
	key   key
	value V
}

func newRecent[V any](most int) recent[V] {
	return recent[V]{most: most, order: list.New(), at: map[key]*list.Element{}}
}

func (r *recent[V]) get(k key) (value V, ok bool) {
	e, ok := r.at[k]
	if !ok {
		return value, false
	}
	return e.Value.(*entry[V]).value, true
}

func (r *recent[V]) put(k key, value V) {
	if e, ok := r.at[k]; ok {
		e.Value.(*entry[V]).value = value
		r.order.MoveToFront(e)
		return
	}
	r.at[k] = r.order.PushFront(&entry[V]{k, value})
	if r.order.Len() > r.most {
		oldest := r.order.Back()
		delete(r.at, oldest.Value.(*entry[V]).key)
		r.order.Remove(oldest)
	}
}

func (r *recent[V]) remove(k key) {
	if e, ok := r.at[k]; ok {
		r.order.Remove(e)
		delete(r.at, k)
	}
}
