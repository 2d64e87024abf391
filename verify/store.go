package verify

import "context"

// Store remembers which events were handled, and how far each stream is. One may be
// shared by any number of Verifiers and processes. All methods may be called from any
// goroutine.
//
// An event is known by its Scope and ID, a stream by its Scope and Asset.
type Store interface {
	// Begin says what is known of an event, and notes that it is being handled if it
	// is Fresh. Of two that begin the same event at once, one is told Fresh and the other
	// Handling. A store that outlives its processes forgets by itself what was begun
	// and never ended, after longer than any handler takes.
	Begin(ctx context.Context, d *Delivery) (Known, error)

	// End says what came of an event that was Fresh: handled, which moves its stream to
	// its StreamSeq if that is higher, or not, and then it will be Fresh again.
	End(ctx context.Context, d *Delivery, handled bool) error
}

// Known is what a Store knows of an event.
type Known struct {
	State State
	// Last is the highest StreamSeq that was handled in the event's stream, 0 if none
	// is known.
	Last int64
}

// State is what became of an event so far.
type State int

const (
	// Fresh: it was not handled, or not with success.
	Fresh State = iota
	// Handling: it is being handled at this moment.
	Handling
	// Handled: it was handled, with success.
	Handled
)
