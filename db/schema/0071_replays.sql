-- Replays: events of a time range sent to a subscription once more, also those that were
-- delivered.
--
--   replays    every replay that somebody asked for, and how far it has got
--   replayed   the deliveries that replays made, and of which events
--
-- A replayed delivery has a sequence number of its own, so retention cannot tell by its
-- number which event it needs: `replayed` says so.

-- migrate:up
CREATE TABLE postlane.replays (
    subscription_id bigint      NOT NULL,
    tenant          text COLLATE "C" NOT NULL,
    -- Chosen by whoever asks: the same again is the same replay.
    id              text COLLATE "C" NOT NULL CHECK (id <> ''),
    since           timestamptz NOT NULL,
    until           timestamptz NOT NULL,
    -- Patterns of event types; none: all that the subscription's match.
    event_types     text[]      NOT NULL,
    -- NULL: any; '': those without one.
    asset           text COLLATE "C",
    requested_by    text        NOT NULL,
    requested_at    timestamptz NOT NULL DEFAULT now(),
    -- Events up to done_seq are looked at, and those up to last_seq are to be.
    done_seq        bigint      NOT NULL,
    last_seq        bigint      NOT NULL,
    deliveries      bigint      NOT NULL DEFAULT 0,
    finished_at     timestamptz,
    PRIMARY KEY (subscription_id, id, tenant)
);

CREATE TABLE postlane.replayed (
    subscription_id bigint NOT NULL,
    seq             bigint NOT NULL,
    event_seq       bigint NOT NULL,
    tenant          text COLLATE "C" NOT NULL,
    replay_id       text COLLATE "C" NOT NULL,
    PRIMARY KEY (subscription_id, seq, tenant)
);
CREATE INDEX replayed_event ON postlane.replayed (event_seq);

-- Whether a pattern of event types (invoice.paid, invoice.*, *) matches a type.
CREATE FUNCTION postlane.matches(pattern text, type text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN pattern = type OR pattern = '*' OR (right(pattern, 2) = '.*' AND starts_with(type, left(pattern, -1)));

-- migrate:down
DROP FUNCTION postlane.matches(text, text);
DROP TABLE postlane.replayed, postlane.replays;
