package verify

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Names of the headers beside those of package signing, as keys of an http.Header.
const (
	HeaderEventType  = "Postlane-Event-Type"
	HeaderAttempt    = "Postlane-Attempt"
	HeaderAsset      = "Postlane-Asset"
	HeaderStreamSeq  = "Postlane-Stream-Seq"
	HeaderStreamPrev = "Postlane-Stream-Prev"
)

// Delivery is a request that was verified.
type Delivery struct {
	// ID is the event's, the same for each attempt (webhook-id).
	ID string
	// Timestamp is when the attempt was signed, to the second.
	Timestamp time.Time
	// Body is the payload, byte for byte.
	Body []byte

	// EventType and Asset say what happened and to what; "" where the sender says
	// nothing.
	EventType, Asset string
	// Attempt is the number of the attempt, from 1; 0 where the sender says nothing.
	Attempt int
	// StreamSeq is the delivery's number in its stream, and StreamPrev that of the one
	// before it, 0 if it is the first. Both are 0 where the sender says nothing.
	StreamSeq, StreamPrev int64
	// Order is what the numbers mean beside what was handled before. Read leaves it at
	// Unordered.
	Order Order

	// Scope is the Verifier's (Config.Scope).
	Scope string
}

// Order is the place of a delivery beside what was handled of its stream before.
type Order int

const (
	// Unordered: the sender gave no numbers, or the Verifier did not look.
	Unordered Order = iota
	// Next: all that comes before it was handled, or nothing is known of the stream.
	Next
	// Gap: the one before it in its stream has not been handled here.
	Gap
	// Late: one that comes after it has been handled before it.
	Late
)

func (o Order) String() string {
	switch o {
	case Next:
		return "next"
	case Gap:
		return "gap"
	case Late:
		return "late"
	}
	return "unordered"
}

// orderOf judges a delivery when last is the highest number that was handled in its
// stream, 0 if none is known.
func orderOf(d *Delivery, last int64) Order {
	switch {
	case d.StreamSeq == 0:
		return Unordered
	case last == 0:
		return Next
	case d.StreamSeq <= last:
		return Late
	case d.StreamPrev > last:
		return Gap
	}
	return Next
}

// describe takes what is not signed out of the headers. What makes no sense there is
// left out: it is no reason to refuse what was signed.
func (d *Delivery) describe(h http.Header) {
	d.EventType = decode(h.Get(HeaderEventType))
	d.Asset = decode(h.Get(HeaderAsset))
	if n, err := strconv.Atoi(h.Get(HeaderAttempt)); err == nil && n > 0 {
		d.Attempt = n
	}
	seq, err := strconv.ParseInt(h.Get(HeaderStreamSeq), 10, 64)
	if err != nil || seq < 1 {
		return
	}
	prev, err := strconv.ParseInt(h.Get(HeaderStreamPrev), 10, 64)
	if err != nil || prev < 0 || prev >= seq {
		return
	}
	d.StreamSeq, d.StreamPrev = seq, prev
}

// decode reverses how text is written in a header: %XX for what is not visible ASCII.
func decode(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

type contextKey struct{}

// From returns the delivery that a handler behind Verifier.Handler was called for.
func From(ctx context.Context) (*Delivery, bool) {
	d, ok := ctx.Value(contextKey{}).(*Delivery)
	return d, ok
}
