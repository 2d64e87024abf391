-- Finds the subscriptions that want operational events, which are few: a tenant without
-- one costs a look at an empty place of this index, when a delivery dies.

-- migrate:up transaction:false
CREATE INDEX CONCURRENTLY subscriptions_operational ON postlane.subscriptions (tenant)
WHERE deleted_at IS NULL
  AND event_types && '{postlane.*,postlane.delivery.*,postlane.delivery.dead,postlane.stream.*,postlane.stream.held,postlane.subscription.*,postlane.subscription.disabled}'::text[];

-- migrate:down
DROP INDEX IF EXISTS postlane.subscriptions_operational;
