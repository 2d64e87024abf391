-- The rate limit of a subscription: at most rate_limit requests in rate_per_s seconds,
-- evenly spaced, of all dispatchers together. NULL: no limit.
--
--   paces   of each subscription with a limit, when its next request may start
--
-- A row of paces is written by every claim that takes of its subscription, and is in no
-- index but the primary key, with room in its page: each is a HOT update.

-- migrate:up
ALTER TABLE postlane.subscriptions
    ADD COLUMN rate_limit integer CHECK (rate_limit BETWEEN 1 AND 10000),
    ADD COLUMN rate_per_s integer CHECK (rate_per_s BETWEEN 1 AND 86400);

CREATE TABLE postlane.paces (
    subscription_id bigint      PRIMARY KEY,
    interval_us     bigint      NOT NULL CHECK (interval_us > 0),
    next_at         timestamptz NOT NULL
) WITH (fillfactor = 50);

-- migrate:down
DROP TABLE postlane.paces;
ALTER TABLE postlane.subscriptions DROP COLUMN rate_per_s, DROP COLUMN rate_limit;
