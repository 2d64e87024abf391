-- Finds the queues that have something to give. It is on an expression so that the primary
-- key, which is in the same order and holds what waits out of the way too, cannot take its
-- place in a plan.

-- migrate:up transaction:false
CREATE INDEX CONCURRENTLY outbox_pending_visible ON postlane.outbox_pending ((queue || ''), seq) WHERE ready;

-- migrate:down
DROP INDEX IF EXISTS postlane.outbox_pending_visible;
