// Package postgres runs a private PostgreSQL server from the server binaries
// of this machine: for `postlane dev`, `postlane bench` and the tests.
//
// A server belongs to the process that started it. It listens on the loopback
// address only, asks for a password that is made at initdb, and is shut down
// when its process ends, however that happens (on Linux at once; elsewhere by
// the next Start on the same directory). Its data stays: Start on a directory
// that already holds data goes on with it.
//
//	Start ──▶ initdb, unless the directory holds data
//	      ──▶ end what an earlier, killed process left running in it
//	      ──▶ postgres ──▶ ready ──▶ Stop (fast shutdown)
//
// PostgreSQL refuses to run as root. Started by root, the server runs as an
// unprivileged user of this machine, which owns the data directory.
package postgres
