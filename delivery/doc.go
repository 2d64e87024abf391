// Package delivery sends webhooks from an application's own PostgreSQL
// transactions: an event is written in the transaction that made the change, and
// reaches every subscribed endpoint at least once, in order per stream, without a
// database connection being held while an endpoint answers.
//
//	            claim                     2xx
//	pending ────────────▶ delivering ──────────▶ delivered
//	   ▲  ▲ ▲                │ │ │
//	   │  │ └── release ─────┘ │ │  attempts used up, 410, stalled on the last attempt
//	   │  └──── reclaim ───────┘ └────────────▶ dead ──▶ discarded (by an operator, or retention)
//	   │        failure (due later)               │
//	   └────────────── revive ────────────────────┘
//
// # Writing events
//
// [Enqueue] takes the caller's pgx.Tx, so the event exists if and only if that
// transaction commits. [Serialize] makes the order of an asset's events exact
// across concurrent transactions.
//
// # Sending them
//
// A [Dispatcher] claims deliveries, sends them through a [sender.Sender] and
// settles them; any number of processes may run one. Underneath, [Store] is the
// data layer with its meaning: claim, settle, release, renew, reclaim, revive,
// discard. Each of its statements is a plain file under db/queries.
//
// # Words
//
// A stream is all deliveries of one (subscription, asset); the events without an
// asset are one stream of their own. A stream has at most one request open, and none
// for a later delivery starts before the earlier one is delivered, dead or discarded:
// whoever holds the stream's lease goes on when an endpoint has answered with a 2xx,
// and records several answers together, in order. A dead letter lets its stream go on, or holds it until an operator
// acts, as the subscription chooses. A claim holds a delivery under a lease and is
// stamped with a fence; whoever lost the lease changes nothing and is told
// [ErrLeaseLost].
package delivery
