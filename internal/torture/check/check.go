package check

import (
	"maps"
	"slices"

	"github.com/postlane-go/postlane/internal/torture/journal"
)

// Dir judges the run whose journals are in a directory, and whose logs are there and in
// the directories below.
func Dir(dir string) (*Report, error) {
	e, err := gather(dir)
	if err != nil {
		return nil, err
	}
	r := &Report{Seed: e.run.Seed, Faults: map[string]int{}}
	for _, f := range e.faults {
		r.Faults[f.Kind]++
	}
	for _, t := range e.transactions {
		r.transaction(t)
	}
	for _, path := range slices.Sorted(maps.Keys(e.subscriptions)) {
		s := e.subscriptions[path]
		r.Requests += len(s.requests)
		r.arrivals(e, s)
		r.presence(e, s)
		r.order(e, s)
		r.overlaps(e, s)
		r.pauses(e, s)
	}
	return r, r.logs(dir, e.secrets)
}

func (r *Report) transaction(t *transaction) {
	if t.committed() {
		r.Events += len(t.Events)
	}
	switch t.outcome {
	case journal.Committed:
		if !t.stored {
			r.find(&r.Vanished, "vanished", "transaction %s", t.Tx)
		}
	case journal.RolledBack:
		if t.stored {
			r.find(&r.Vanished, "vanished", "the rollback of transaction %s", t.Tx)
		}
	default:
		r.UnknownCommits++
	}
}
