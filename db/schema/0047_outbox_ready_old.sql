-- The index of 0036 that outbox_pending_visible takes the place of. A claim of the release
-- before does without it, by the primary key.

-- migrate:up transaction:false
DROP INDEX CONCURRENTLY IF EXISTS postlane.outbox_pending_ready;

-- migrate:down transaction:false
CREATE INDEX CONCURRENTLY outbox_pending_ready ON postlane.outbox_pending (queue, seq) WHERE ready;
