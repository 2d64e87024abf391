package receiver

import "time"

// noticed is how long a hang-up may take to be noticed.
const noticed = 250 * time.Millisecond

// witness is a request that found its stream open, and decides whether that is
// an overlap.
//
// It is not if the sender had hung up on all the others: a sender whose request
// times out closes the connection, and may send again before this end has read
// so. Those others end as hung up within moments. One that is answered, or that
// stays open longer, was truly open.
type witness struct {
	ticket  uint64
	others  int32 // open before it and not known to be hung up; guarded by the shard's lock
	verdict chan bool
}

func newWitness(ticket uint64, others int32) *witness {
	return &witness{ticket: ticket, others: others, verdict: make(chan bool, 1)}
}

// left tells the witness that a request of its stream ended. The shard's lock
// is held.
func (w *witness) left(ticket uint64, hungUp bool) {
	if ticket >= w.ticket || w.others == 0 {
		return
	}
	if !hungUp {
		w.others = 0
		w.verdict <- true
		return
	}
	if w.others--; w.others == 0 {
		w.verdict <- false
	}
}

func (w *witness) wait() bool {
	t := time.NewTimer(noticed)
	defer t.Stop()
	select {
	case overlap := <-w.verdict:
		return overlap
	case <-t.C:
		return true
	}
}
