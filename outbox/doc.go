// Package outbox carries messages from an application's own PostgreSQL transactions
// to anything that is not a webhook: a broker, a job queue, another service. A
// message is staged in the transaction that made the change, claimed under a fenced
// lease, and relayed to a Publisher at least once, in order per queue.
//
//	            claim                       publish
//	 staged ─▶ pending ───────────▶ claimed ────────▶ published ──▶ (pruned)
//	   │        ▲  ▲ ▲               │ │ │
//	   │        │  │ └── release ────┘ │ │
//	   │        │  └──── lease over ───┘ │   a failed attempt: the message stays first,
//	   │        ├──────── failed ────────┤   and its queue waits for the next
//	   ▼        │                        ▼
//	scheduled ──┘ when due             parked ──▶ pending, by an operator
//
// # Staging
//
// [Stage] takes the caller's pgx.Tx: the message exists if and only if that
// transaction commits. Code that may be called without a transaction uses an
// [Enqueuer], which says so if there is none.
//
// # Order
//
// The queue of a message is its ordering key. What is staged in one transaction keeps
// its order exactly; between concurrent transactions order is best effort, and one
// that commits late is published late, never left out. A claim is on a queue: while a
// relay holds messages of it, no other gets later ones. A message that cannot be
// published holds up its queue until it can ([Wedge]), or is set aside ([Park]).
//
// # Relaying
//
// A [Relay] claims, publishes and settles; any number of processes may run one.
// Everything a claimant writes names its fence: a relay that lost its lease, because
// it was too slow or was stopped for a while, changes nothing and is told
// [ErrLeaseLost]. What a killed relay held is taken over when its lease ends.
//
// "At least once" means that a message can arrive twice: after a crash between
// publishing and saying so, at most what was published in the last 50 ms or in one
// call of a [BatchPublisher]. Its ID is the same each time.
//
// # Stores
//
// [Postgres] is the store; [Memory] is one for tests. Both pass the suite of package
// outboxtest, and so can another.
package outbox
