-- The holder of a lease may run ahead in its stream: send, one after another, as many
-- deliveries as this behind the one at which the lease stands.

-- migrate:up
ALTER TABLE postlane.leases ADD COLUMN ahead integer NOT NULL DEFAULT 0;

-- migrate:down
ALTER TABLE postlane.leases DROP COLUMN ahead;
