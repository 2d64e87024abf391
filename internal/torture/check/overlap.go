package check

import "github.com/postlane-go/postlane/internal/torture/journal"

// overlaps looks for requests that began while another of their stream was open.
func (r *Report) overlaps(e *evidence, s *subscription) {
	open := map[string]*request{} // of a stream, the one that ends last
	for _, q := range s.requests {
		before := open[q.Asset]
		if before != nil && q.At < closed(before) {
			if e.explainedOverlap(before, q) {
				r.ExplainedOverlaps++
			} else {
				r.find(&r.Overlaps, "overlap", "%s, asset %q: %s from %s at %s (ended %s, %s) and %s from %s at %s",
					s.Path, q.Asset, before.ID, before.Worker, clock(before.At), clock(before.ended), before.how, q.ID, q.Worker, clock(q.At))
			}
		}
		if before == nil || q.ended > before.ended {
			open[q.Asset] = q
		}
	}
}

// closed is when a request was over. Its sender left a little before that was seen.
func closed(q *request) int64 {
	if q.how == journal.Left {
		return q.ended - notice
	}
	return q.ended
}

// pauses looks for requests that began when none may: after a pause until the
// subscription is enabled, and after its deletion.
func (r *Report) pauses(e *evidence, s *subscription) {
	for i, c := range s.changes {
		if c.What != journal.Pause && c.What != journal.Delete {
			continue
		}
		until := int64(never)
		for _, later := range s.changes[i+1:] {
			if later.What == journal.Enable {
				until = later.Began
				break
			}
		}
		for _, q := range s.requests {
			if q.At > c.Ended && q.At < until && !e.frozen(q.Worker, q.At, q.At) {
				r.find(&r.WhilePaused, "while paused", "%s at %s from %s at %s, after %s at %s", q.ID, s.Path, q.Worker, clock(q.At), c.What, clock(c.Ended))
			}
		}
	}
}
