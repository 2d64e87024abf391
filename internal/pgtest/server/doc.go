// Package server gives every test process of a run the same PostgreSQL.
//
// `go test ./...` runs each package's tests in a process of its own, several at
// once, so no single one of them can own the server. The first that needs it
// starts a keeper, which owns the server and outlives the tests for some
// seconds, so that the next package finds it running:
//
//	test process ─ lock ─ state file there, and answers? ── yes ──▶ use it
//	                          │ no
//	                          ▼
//	                    keeper (this binary once more) ─▶ PostgreSQL
//
// A process that uses the server has a shared lock on the file "lease" until
// it ends, however it ends. The keeper tries for an exclusive one: when it has
// been to be had for a while, nobody is left, and the keeper shuts the server
// down and removes its data.
//
// Where the environment names a server (URLEnv), that one is used, and nothing
// is started.
package server
