package check

import (
	"cmp"
	"slices"

	"github.com/postlane-go/postlane/internal/torture/journal"
)

// arrived is an event in a stream of a subscription.
type arrived struct {
	*event

	first int64 // when it first arrived; never
	done  int64 // when an endpoint first answered it with a 2xx; never
}

// order looks, stream by stream, for events that arrived out of their order. Which of
// two comes first is defined only
//
//   - within a transaction,
//   - where one's commit was answered before the other's transaction began, and
//   - between transactions that held a lock on the asset when they wrote.
func (r *Report) order(e *evidence, s *subscription) {
	type stream struct{ asset, route string }
	streams := map[stream][]*arrived{}
	seen := map[string]*arrived{}
	for _, q := range s.requests {
		x := e.events[q.ID]
		if x == nil || !s.may(x) {
			continue
		}
		a := seen[q.ID]
		if a == nil {
			a = &arrived{event: x, first: q.At, done: never}
			seen[q.ID] = a
			streams[stream{x.Asset, x.Route}] = append(streams[stream{x.Asset, x.Route}], a)
		}
		if q.status/100 == 2 {
			a.done = min(a.done, closed(q))
		}
	}
	for id, x := range e.events {
		if seen[id] == nil && s.owed(x) && s.deleted == never {
			streams[stream{x.Asset, x.Route}] = append(streams[stream{x.Asset, x.Route}], &arrived{event: x, first: never, done: never})
		}
	}
	for k, list := range streams {
		list = slices.DeleteFunc(list, func(a *arrived) bool {
			// Settled without a 2xx: at what time is not known here.
			dead := s.states[a.ID] == journal.Dead || s.states[a.ID] == journal.Discarded
			if dead {
				a.done = a.first
			}
			return dead && a.first == never
		})
		wrong := map[*arrived]bool{}
		byCommit(list, wrong)
		byPlace(list, wrong)
		byVersion(list, wrong)
		for a := range wrong {
			r.find(&r.OutOfOrder, "out of order", "%s at %s, asset %q, %s, at %s, of transaction %s", a.ID, s.Path, k.asset, k.route, clock(a.first), a.tx.Tx)
		}
	}
}

// byCommit finds what arrived before one whose commit was answered before its own
// transaction began was done.
func byCommit(list []*arrived, wrong map[*arrived]bool) {
	began := slices.Clone(list)
	slices.SortFunc(began, func(a, b *arrived) int { return cmp.Compare(a.tx.Began, b.tx.Began) })
	ended := slices.Clone(list)
	slices.SortFunc(ended, func(a, b *arrived) int { return cmp.Compare(a.tx.ended, b.tx.ended) })
	var done int64 // of all that committed before
	for _, a := range began {
		for len(ended) > 0 && ended[0].tx.ended < a.tx.Began {
			done = max(done, ended[0].done)
			ended = ended[1:]
		}
		if a.first != never && a.first < done {
			wrong[a] = true
		}
	}
}

// byPlace finds what arrived before an earlier one of its transaction was done.
func byPlace(list []*arrived, wrong map[*arrived]bool) {
	ordered := slices.Clone(list)
	slices.SortFunc(ordered, func(a, b *arrived) int {
		return cmp.Or(cmp.Compare(a.tx.Tx, b.tx.Tx), cmp.Compare(a.place, b.place))
	})
	chain(ordered, wrong, func(a *arrived) string { return a.tx.Tx })
}

// byVersion finds what arrived before a lower version of its asset was done.
func byVersion(list []*arrived, wrong map[*arrived]bool) {
	ordered := slices.DeleteFunc(slices.Clone(list), func(a *arrived) bool { return a.Version == 0 })
	slices.SortFunc(ordered, func(a, b *arrived) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.place, b.place))
	})
	chain(ordered, wrong, func(*arrived) string { return "" })
}

// chain judges events that are in order within each group.
func chain(ordered []*arrived, wrong map[*arrived]bool, group func(*arrived) string) {
	var done int64
	for i, a := range ordered {
		if i > 0 && group(ordered[i-1]) != group(a) {
			done = 0
		}
		if a.first != never && a.first < done {
			wrong[a] = true
		}
		done = max(done, a.done)
	}
}
