// Package migrate applies the migrations of package db.
//
// The files are in dbmate's format and the versions are kept where dbmate keeps
// them, so that a team may use either tool, or both in turn:
//
//	-- migrate:up                      the statements, in a transaction of their own
//	-- migrate:up transaction:false    exactly one statement, outside any
//	-- migrate:down                    what undoes them
//
//	CREATE TABLE public.schema_migrations (version varchar PRIMARY KEY)
//
// A database may share that table with an application's own migrations: only
// the versions of the given files count here, and nothing else in it is touched.
//
// What dbmate does not do, this package does:
//
//   - Any number of processes may migrate at once: one works, the others wait
//     and find nothing left to do. Its lock belongs to the connection that the
//     migrations run on, so it can't outlive the work, nor the work the lock.
//   - On a busy database a migration waits 300 ms at most for a table's lock,
//     since everybody who comes after it waits as long, and then steps back and
//     tries again.
//   - A transaction:false part of several statements, which PostgreSQL would run
//     in one implicit transaction all the same, is refused before anything runs.
//
// The connection must be one to PostgreSQL itself or to a pooler in session
// mode: the lock is a session's.
package migrate
