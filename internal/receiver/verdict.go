package receiver

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Verdict is what was seen so far. While requests arrive its figures are read
// one after the other, so they may differ by those in flight.
type Verdict struct {
	Requests  int64 `json:"requests"`  // all, the refused included
	Events    int64 `json:"events"`    // distinct webhook-id per path
	Accepted  int64 `json:"accepted"`  // events answered 2xx at least once
	Streams   int64 `json:"streams"`   // path and asset, with an event
	Open      int64 `json:"open"`      // requests open now
	Abandoned int64 `json:"abandoned"` // ended before their answer

	Duplicates  int64 `json:"duplicates"`  // requests for an event that had arrived before
	Redelivered int64 `json:"redelivered"` // of those, the event had been answered 2xx before
	Unverified  int64 `json:"unverified"`  // no secret known for the path

	Overlaps      int64 `json:"overlaps"`
	OutOfOrder    int64 `json:"out_of_order"`
	Gaps          int64 `json:"gaps"`
	Conflicting   int64 `json:"conflicting"`
	BadSignatures int64 `json:"bad_signatures"`
	BadTimestamps int64 `json:"bad_timestamps"`
	BadHeaders    int64 `json:"bad_headers"`
	Unread        int64 `json:"unread"` // body broke off or was too large

	First    *time.Time `json:"first"` // arrival, null if none
	Last     *time.Time `json:"last"`
	Examples []string   `json:"examples"`        // the first few problems of each kind
	Light    bool       `json:"light,omitempty"` // nothing was judged: the zeros above say nothing
}

// Problems is how many times a promise was found broken.
func (v Verdict) Problems() int64 {
	return v.Overlaps + v.OutOfOrder + v.Gaps + v.Conflicting +
		v.BadSignatures + v.BadTimestamps + v.BadHeaders + v.Unread
}

// OK reports whether every request was judged and no promise found broken. A
// receiver that judged nothing is not OK.
func (v Verdict) OK() bool { return !v.Light && v.Problems() == 0 }

// Verdict returns what was seen on all paths.
func (r *Receiver) Verdict() Verdict {
	var v Verdict
	for _, e := range r.endpoints.all() {
		e.addTo(&v)
	}
	r.total.addTo(&v)
	return r.finish(v, AnyPath)
}

// VerdictOf returns what was seen on one path.
func (r *Receiver) VerdictOf(path string) Verdict {
	var v Verdict
	if e := r.endpoints.look(path); e != nil {
		e.addTo(&v)
	}
	return r.finish(v, path)
}

func (r *Receiver) finish(v Verdict, path string) Verdict {
	v.Light = r.config.Light
	v.Examples = r.examples.list(path)
	return v
}

// counters are the figures of one path.
type counters struct {
	requests, events, accepted, streams, open atomic.Int64
	first, last                               atomic.Int64 // Unix nanoseconds, 0 if none
	found                                     [findings]atomic.Int64
}

// arrive counts a request and opens it.
func (c *counters) arrive(at time.Time) {
	c.requests.Add(1)
	c.open.Add(1)
	ns := at.UnixNano()
	for first := c.first.Load(); first == 0 || ns < first; first = c.first.Load() {
		if c.first.CompareAndSwap(first, ns) {
			break
		}
	}
	for last := c.last.Load(); ns > last; last = c.last.Load() {
		if c.last.CompareAndSwap(last, ns) {
			break
		}
	}
}

// find counts findings.
func (c *counters) find(f Finding) {
	for i := 0; f != 0; i, f = i+1, f>>1 {
		if f&1 != 0 {
			c.found[i].Add(1)
		}
	}
}

func (c *counters) addTo(v *Verdict) {
	v.Requests += c.requests.Load()
	v.Events += c.events.Load()
	v.Accepted += c.accepted.Load()
	v.Streams += c.streams.Load()
	v.Open += c.open.Load()
	for i, field := range [findings]*int64{
		&v.Duplicates, &v.Redelivered, &v.Unverified, &v.Abandoned, &v.Overlaps, &v.OutOfOrder,
		&v.Gaps, &v.Conflicting, &v.BadSignatures, &v.BadTimestamps, &v.BadHeaders, &v.Unread,
	} {
		*field += c.found[i].Load()
	}
	if ns := c.first.Load(); ns != 0 {
		if t := time.Unix(0, ns).UTC(); v.First == nil || t.Before(*v.First) {
			v.First = &t
		}
	}
	if ns := c.last.Load(); ns != 0 {
		if t := time.Unix(0, ns).UTC(); v.Last == nil || t.After(*v.Last) {
			v.Last = &t
		}
	}
}

// examples are the first few problems of each kind, as text, in the order of
// their arrival: a flood of one kind does not hide the one case of another.
type examples struct {
	limit int32
	taken [findings]atomic.Int32

	mu    sync.Mutex
	items []example
}

type example struct{ path, text string }

// add keeps a problem, or drops it without building its text.
func (x *examples) add(f Finding, a Arrival, format string, args ...any) {
	kind := 0
	for f>>kind != 1 {
		kind++
	}
	if x.taken[kind].Load() >= x.limit || x.taken[kind].Add(1) > x.limit {
		return
	}
	text := fmt.Sprintf("%s: %s: %s", f, a, fmt.Sprintf(format, args...))
	x.mu.Lock()
	defer x.mu.Unlock()
	x.items = append(x.items, example{a.Path, text})
}

// list returns the examples of one path, or of all.
func (x *examples) list(path string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := []string{} // JSON [] and not null
	for _, e := range x.items {
		if path == AnyPath || path == e.path {
			list = append(list, e.text)
		}
	}
	return list
}
