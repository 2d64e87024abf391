package check

import "github.com/postlane-go/postlane/internal/torture/journal"

// presence looks for what must have been delivered.
func (r *Report) presence(e *evidence, s *subscription) {
	delivered := map[string]bool{}
	for _, q := range s.requests {
		// Whether all of the answer was written does not matter: its status was.
		if q.status/100 == 2 {
			delivered[q.ID] = true
		}
	}
	for id, x := range e.events {
		state := s.states[id]
		switch {
		case state == journal.Dead:
			r.Dead++
		case state == journal.Discarded:
			r.Discarded++
		case state == journal.Delivered && !delivered[id]:
			r.find(&r.Lost, "lost", "%s at %s: settled as delivered, and it was not", id, s.Path)
		case s.deleted != never:
		case state == journal.Pending:
			r.find(&r.Stuck, "stuck", "%s at %s, asset %q", id, s.Path, x.Asset)
		case s.owed(x) && !delivered[id]:
			r.find(&r.Lost, "lost", "%s at %s, asset %q, %s, of transaction %s", id, s.Path, x.Asset, x.Route, x.tx.Tx)
		}
	}
}
