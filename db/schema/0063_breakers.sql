-- The breaker of a subscription whose endpoint is not there, or asks for less.
--
--   breakers   of each subscription whose last requests found no endpoint: how many
--              they are, and while the breaker is open when the next request may go out
--
-- A success removes the row. failing says in the subscription that there is one, so that
-- claims and settling look for it there alone; the two are written together, under the
-- lock of the subscription's row.

-- migrate:up
ALTER TABLE postlane.subscriptions ADD COLUMN failing boolean NOT NULL DEFAULT false;

CREATE TABLE postlane.breakers (
    subscription_id bigint  PRIMARY KEY,
    -- In a row, of the subscription's requests.
    failures        integer NOT NULL DEFAULT 0,
    -- NULL: closed, and so are the next two.
    open_since      timestamptz,
    probe_at        timestamptz,
    pause_ms        bigint
) WITH (fillfactor = 50);

-- migrate:down
DROP TABLE postlane.breakers;
ALTER TABLE postlane.subscriptions DROP COLUMN failing;
