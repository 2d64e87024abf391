-- What the console needs: sessions, and statistics that cost settling nothing.
--
--   console_sessions     who is signed in; a session ends with its key
--   statistics_minutes   requests by minute: of each tenant, and ('') of all
--   statistics_spans     requests by five minutes, of each subscription
--   statistics_kinds     requests by hour, of each subscription, by type and outcome
--   statistics_progress  up to where the attempts are counted
--
-- Settling writes no counter: many settle at once and would wait for each other at its
-- row. Attempts instead tell when they were recorded, and a server counts each minute
-- once, when it is over, into the tables above. Those are small, and what they hold is
-- a day old at most.
--
-- recorded_at is now() of the transaction that recorded the attempt, so it rises with
-- the rows' place in the table and a BRIN index finds a minute: see 0041. What was
-- recorded before this migration carries the migration's time and is not counted.

-- migrate:up
ALTER TABLE postlane.attempts ADD COLUMN recorded_at timestamptz NOT NULL DEFAULT now();

CREATE TABLE postlane.console_sessions (
    -- SHA-256 of the cookie, and of the key that was signed in with.
    hash       bytea       PRIMARY KEY CHECK (octet_length(hash) = 32),
    key_hash   bytea       NOT NULL CHECK (octet_length(key_hash) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX console_sessions_expiry ON postlane.console_sessions (expires_at);

-- answer counts the answered requests by how long the answer took, delay the delivered
-- events by their age: a number for each bucket, whose bounds the console knows.
CREATE TABLE postlane.statistics_minutes (
    tenant    text COLLATE "C" NOT NULL,
    at        timestamptz NOT NULL,
    delivered bigint      NOT NULL,
    failed    bigint      NOT NULL,
    answer    bigint[]    NOT NULL,
    delay     bigint[]    NOT NULL,
    PRIMARY KEY (tenant, at)
);
CREATE INDEX statistics_minutes_at ON postlane.statistics_minutes (at);

CREATE TABLE postlane.statistics_spans (
    subscription_id bigint      NOT NULL,
    at              timestamptz NOT NULL,
    delivered       bigint      NOT NULL,
    failed          bigint      NOT NULL,
    answer          bigint[]    NOT NULL,
    PRIMARY KEY (subscription_id, at)
);
CREATE INDEX statistics_spans_at ON postlane.statistics_spans (at);

CREATE TABLE postlane.statistics_kinds (
    subscription_id bigint      NOT NULL,
    at              timestamptz NOT NULL,
    -- -1 where no answer came.
    status          integer     NOT NULL,
    event_type      text COLLATE "C" NOT NULL,
    outcome         text COLLATE "C" NOT NULL,
    attempts        bigint      NOT NULL,
    PRIMARY KEY (subscription_id, at, event_type, outcome, status)
);
CREATE INDEX statistics_kinds_at ON postlane.statistics_kinds (at);

CREATE TABLE postlane.statistics_progress (
    only_one boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
    -- The first minute that is not counted.
    at       timestamptz NOT NULL
);
INSERT INTO postlane.statistics_progress (at)
SELECT date_trunc('minute', now()) + CASE WHEN EXISTS (SELECT 1 FROM postlane.attempts) THEN interval '1 minute' ELSE interval '0' END;

-- Adds histograms bucket by bucket.
CREATE FUNCTION postlane.statistics_add(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT array_agg(coalesce(u.x, 0) + coalesce(u.y, 0) ORDER BY u.n) FROM unnest(a, b) WITH ORDINALITY AS u (x, y, n)
$$;

-- migrate:down
DROP FUNCTION postlane.statistics_add(bigint[], bigint[]);
DROP TABLE postlane.statistics_progress, postlane.statistics_kinds, postlane.statistics_spans, postlane.statistics_minutes,
    postlane.console_sessions;
ALTER TABLE postlane.attempts DROP COLUMN recorded_at;
