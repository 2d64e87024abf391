-- Finds what has waited longest, and lists what waits in that order, without a look at
-- the rest of the backlog.

-- migrate:up transaction:false
CREATE INDEX CONCURRENTLY outbox_pending_since ON postlane.outbox_pending (since, seq);

-- migrate:down
DROP INDEX IF EXISTS postlane.outbox_pending_since;
