// Package postlanetest is for the tests of an application that uses Postlane.
//
//   - [ExpectEvents] and [ExpectMessages] look into a transaction of the test, before it
//     commits or instead: did the code under test enqueue what it should?
//   - [NewReceiver] is an endpoint that verifies and records what it gets, and answers as
//     the test says.
//   - [Deliver] and [Relay] run a dispatcher or a relay until there is nothing left to do.
//   - [Clock] is the time of a store, which moves when the test says so: retries that are
//     hours away take none.
//   - [Migrate] gives the test's database the schema.
//
// A test needs a PostgreSQL, and should have a database in it to itself: Deliver and Relay
// work on all there is.
package postlanetest
