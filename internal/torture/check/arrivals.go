package check

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/postlane-go/postlane/internal/torture/journal"
)

// arrivals judges each request, and each that came again.
func (r *Report) arrivals(e *evidence, s *subscription) {
	last := map[string]*request{}
	for _, q := range s.requests {
		x := e.events[q.ID]
		if x == nil || !s.may(x) {
			r.find(&r.Phantom, "phantom", "%s at %s, %s", q.ID, s.Path, why(s, x))
			continue
		}
		payload := journal.Payload(x.Nonce, x.Size)
		hash := sha256.Sum256(payload)
		if q.Hash != hex.EncodeToString(hash[:]) || q.Type != x.Type || q.Asset != x.Asset {
			r.find(&r.Corrupt, "corrupt", "%s at %s is not as it was written", q.ID, s.Path)
		} else if !signed(q, payload, s) {
			r.find(&r.BadSignatures, "bad signature", "%s at %s, attempt %s", q.ID, s.Path, q.Attempt)
		}
		if first := last[q.ID]; first != nil {
			switch {
			case !first.succeeded():
				r.Retries++
			case e.explainedDuplicate(s, first, q):
				r.ExplainedDuplicates++
			default:
				r.find(&r.UnexplainedDuplicates, "duplicate", "%s at %s from %s at %s (ended %s) and from %s at %s",
					q.ID, s.Path, first.Worker, clock(first.At), clock(first.ended), q.Worker, clock(q.At))
			}
		}
		last[q.ID] = q
	}
}

func why(s *subscription, x *event) string {
	switch {
	case x == nil:
		return "which nobody was to commit"
	case !x.tx.committed():
		return "whose transaction " + x.tx.Tx + " did not commit"
	case !s.wants(x.Type):
		return "which does not want " + x.Type
	}
	return "which was made after it"
}
