-- Finds the oldest events, which pruning looks for.
--
-- A B-tree, since a BRIN index forgets nothing: where pruning leaves room new events
-- move in, and the ranges of old blocks stay as wide as the time that they have seen.
-- Entries are added at its right end and removed at its left. It costs an enqueued event
-- 68 bytes of WAL, 5 % (PostgreSQL 15, payloads of 500 bytes, one subscription).

-- migrate:up transaction:false
CREATE INDEX CONCURRENTLY events_seq ON postlane.events (seq);

-- migrate:down
DROP INDEX IF EXISTS postlane.events_seq;
