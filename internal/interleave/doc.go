// Package interleave runs a few actors, each with a session of its own on a real
// PostgreSQL, in every order in which their statements can follow one another.
//
// A step is one statement, or one end of a transaction, of the code under test as it
// really sends them; gates (InstallGates) split a statement between its snapshot and what
// it reads, and between what it reads and what it writes. Explore replays the actors from
// the same beginning once for each order, and looks at the database after each step.
// Whether a statement waits for a lock is read from PostgreSQL, so nothing waits for
// time to pass, and an order that locks forbid is not tried.
package interleave
