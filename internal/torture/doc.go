// Package torture runs Postlane as real processes under faults that are drawn from a
// seed, and has what they wrote down judged by package check.
//
//	producers ──proxy──▶ PostgreSQL ◀──proxy── workers ──▶ receivers
//	    │                 │      ▲                             │
//	 journals          standby   └── faults ◀── schedule    journals
//
// Each producer, worker and operator reaches PostgreSQL through a proxy of its own,
// which can cut, delay and swallow what passes. The primary has a synchronous standby,
// which takes over when the primary is lost. What a fault does, and between which
// times, is in the harness's journal: by it the checker explains what it finds.
package torture
