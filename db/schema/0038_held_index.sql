-- Finds the dead letters that hold their streams, among a million that wait.
-- A delivery enters it when it dies, so that enqueueing and claiming never write it.

-- migrate:up transaction:false
CREATE INDEX CONCURRENTLY deliveries_held ON postlane.deliveries (subscription_id, seq) WHERE held_at IS NOT NULL;

-- migrate:down
DROP INDEX IF EXISTS postlane.deliveries_held;
