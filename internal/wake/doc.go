// Package wake tells dispatchers and relays, within milliseconds of a commit,
// that there may be something to claim.
//
// It is a hint and never the truth. A commit may come without one (see
// Limiter), a connection can be down, a pooler can swallow it: whoever listens
// here polls as well, only less often. What is waiting is known from looking at
// the table.
//
//	producer's transaction ── pg_notify('postlane', 'delivery') ── COMMIT
//	                                        │
//	Hub: one connection per process, LISTEN postlane
//	                                        │ the payload is one Word, never content
//	           Subscribe(Delivery) ◀────────┴────────▶ Subscribe(Message)
//
// A Hub signals everybody after each connect, so that what was committed while
// nobody listened is looked at once. It looks after its connection itself: one
// that has gone silent without being closed is found by a heartbeat and
// replaced.
package wake

// Channel is what producers NOTIFY and a Hub LISTENs on. The payload is a Word;
// one without a payload wakes everybody, and an unknown word nobody.
const Channel = "postlane"

// Word is the payload of a notification: what may be waiting.
type Word string

const (
	// Delivery: a delivery may have become ready.
	Delivery Word = "delivery"
	// Subscription: a subscription was changed, paused or enabled.
	Subscription Word = "subscription"
	// Message: a message was staged in the outbox, or became due.
	Message Word = "message"
)
