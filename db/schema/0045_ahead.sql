-- The holder of a lease may run ahead in its stream: send, one after another, as many
-- deliveries as this behind the one at which the lease stands.

-- migrate:up
ALTER TABLE postlane.leases ADD COLUMN ahead integer NOT NULL DEFAULT 0;

-- What is in flight of a subscription, from a fence on: a claim counts it, and beside an
-- old snapshot the leases that ended stay in the other index, among those that have not.
-- Of expressions, so that no plan looks for one lease by it, whatever it believes of the
-- table: those of a claim share a fence, and those of a subscription are many.
CREATE INDEX leases_fence ON postlane.leases ((subscription_id + 0), (fence + 0));

-- migrate:down
DROP INDEX postlane.leases_fence;
ALTER TABLE postlane.leases DROP COLUMN ahead;
