-- Finds what was discarded, or died, among a million that were delivered. A delivered
-- row never enters it, so that settling one does not write it.

-- migrate:up transaction:false
CREATE INDEX CONCURRENTLY settled_undelivered ON postlane.settled (subscription_id, seq) WHERE state <> 'delivered';

-- migrate:down
DROP INDEX IF EXISTS postlane.settled_undelivered;
