// Package verify is for those who receive webhooks: net/http middleware that lets a
// request through if it was signed with a secret of theirs, within the last minutes,
// and was not handled before.
//
//	request ─▶ read (at most MaxBody) ─▶ signature, timestamp ─▶ handled before? ─▶ the handler
//	              │                          │                      │        │
//	              ▼                          ▼                      ▼        ▼
//	             413                      400, 401            200, at once   409: being handled now
//
// [Verifier.Handler] is the middleware. [Verifier.Read] checks signature and timestamp
// alone, for frameworks with requests of their own. The handler finds the raw body where
// it always is, and the rest in the [Delivery] of its context ([From]).
//
// # Repetitions
//
// Delivery is at least once: an event comes again, with the same webhook-id, when an
// answer was lost or was no success. An event that was handled with success is answered
// 200 and goes no further; one that failed goes to the handler again. What was handled is
// remembered in a [Store]. [Memory], the default, forgets with the process; a handler
// that must not do a thing twice notes the id in the transaction in which it does it.
//
// # Order
//
// Postlane numbers the deliveries of a stream (the events of one asset to one endpoint) and
// names with each the number of the one before. [Delivery.Order] says what that means
// here: [Next], [Gap] where something before it has not been handled, [Late] where
// something after it has. The sender keeps the order by itself; a gap or a late arrival
// is the trace of a dead letter, or of a receiver that lost its memory. What it means for
// the handler, only the handler knows, so both reach it.
//
// The signature covers the id, the timestamp and the body, not the numbers: they are
// for finding faults, not for keeping attackers out. Those are kept out by the id.
//
// The package needs the standard library and package signing, and no database.
package verify
