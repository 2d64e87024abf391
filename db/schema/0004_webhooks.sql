-- Webhooks: subscriptions, events, deliveries and attempts.
--
-- A delivery is one event on its way to one subscription. While it occupies its
-- stream (pending, in flight, or dead and holding) it is a row of `deliveries`;
-- once settled (delivered, dead, discarded) it moves to `settled`. So the
-- tables that every claim reads stay as small as the backlog, however long the
-- history grows.
--
--   subscriptions          an endpoint, its event types, limits and state
--   subscription_patterns  its event types, one row each, for the fan-out
--   subscription_secrets   what its requests are signed with
--   events                 what happened, with the payload's exact bytes, once
--   deliveries             what still has to be sent, narrow
--   leases                 who is sending what right now: one row per stream
--   settled                what became of every delivery
--   attempts               every request that was made, and its outcome
--
-- No foreign key leads out of deliveries, leases, settled or attempts: checking
-- one would lock the subscription's row in every enqueue and every claim. A
-- subscription is deleted by marking it; its rows follow in the background.
--
-- Text keys compare as bytes (COLLATE "C"): faster, and an upgrade of the
-- operating system's collations cannot corrupt their indexes.

-- migrate:up
CREATE SCHEMA postlane;

CREATE TABLE postlane.subscriptions (
    -- Random, so that an id neither counts nor can be guessed.
    id            bigint      PRIMARY KEY DEFAULT (('x' || left(md5(gen_random_uuid()::text), 16))::bit(64)::bigint & 9223372036854775807),
    -- Rises with every change that a sender must know of, so that a dispatcher
    -- can keep what it read until the claim names a newer one.
    revision      bigint      NOT NULL DEFAULT 1,
    tenant        text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    url           text        NOT NULL CHECK (url <> ''),
    description   text,
    event_types   text[]      NOT NULL DEFAULT '{*}',
    state         text        NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'disabled')),
    state_reason  text,
    state_since   timestamptz NOT NULL DEFAULT now(),
    on_dead       text        NOT NULL DEFAULT 'continue' CHECK (on_dead IN ('continue', 'hold')),
    max_attempts  integer     NOT NULL DEFAULT 8 CHECK (max_attempts BETWEEN 1 AND 1000),
    -- NULL: the dispatcher's own limit per subscription.
    max_in_flight integer     CHECK (max_in_flight BETWEEN 1 AND 10000),
    -- Dead deliveries in a row, without a success between, that disable it; 0: never.
    disable_after integer     NOT NULL DEFAULT 20 CHECK (disable_after >= 0),
    failure_count integer     NOT NULL DEFAULT 0 CHECK (failure_count >= 0),
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    deleted_at    timestamptz
);
-- The claim steps over what is not active by this index.
CREATE INDEX subscriptions_active ON postlane.subscriptions (id) WHERE state = 'active' AND deleted_at IS NULL;
CREATE INDEX subscriptions_tenant ON postlane.subscriptions (tenant, id) WHERE deleted_at IS NULL;
CREATE INDEX subscriptions_deleted ON postlane.subscriptions (id) WHERE deleted_at IS NOT NULL;

-- The patterns of event_types without those that another covers, so that an
-- event meets each subscription at most once. Written by the trigger alone.
CREATE TABLE postlane.subscription_patterns (
    tenant          text COLLATE "C" NOT NULL,
    pattern         text COLLATE "C" NOT NULL,
    subscription_id bigint NOT NULL,
    PRIMARY KEY (tenant, pattern, subscription_id)
);
CREATE INDEX subscription_patterns_subscription ON postlane.subscription_patterns (subscription_id);

CREATE FUNCTION postlane.subscription_patterns_sync() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM postlane.subscription_patterns WHERE subscription_id = NEW.id;
    IF NEW.deleted_at IS NULL THEN
        INSERT INTO postlane.subscription_patterns (tenant, pattern, subscription_id)
        SELECT DISTINCT NEW.tenant, p.pattern, NEW.id
        FROM unnest(NEW.event_types) AS p(pattern)
        WHERE NOT EXISTS (
            SELECT 1 FROM unnest(NEW.event_types) AS q(pattern)
            WHERE q.pattern <> p.pattern
              AND (q.pattern = '*' OR (right(q.pattern, 2) = '.*' AND starts_with(p.pattern, left(q.pattern, -1))))
        );
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER subscription_patterns_sync
    AFTER INSERT OR UPDATE OF event_types, tenant, deleted_at ON postlane.subscriptions
    FOR EACH ROW EXECUTE FUNCTION postlane.subscription_patterns_sync();

CREATE TABLE postlane.subscription_secrets (
    subscription_id bigint      NOT NULL REFERENCES postlane.subscriptions (id) ON DELETE CASCADE,
    number          integer     NOT NULL,
    -- The secret, or what the key named by key_id made of it.
    secret          bytea       NOT NULL,
    key_id          text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    -- NULL: the current one. Others go on signing beside it until then.
    expires_at      timestamptz,
    PRIMARY KEY (subscription_id, number)
);

CREATE TABLE postlane.events (
    created_at   timestamptz NOT NULL DEFAULT now(),
    tenant       text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    id           text COLLATE "C" NOT NULL CHECK (id <> ''),
    type         text COLLATE "C" NOT NULL CHECK (type <> ''),
    asset        text COLLATE "C" CHECK (asset <> ''),
    content_type text        NOT NULL,
    payload      bytea       NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE postlane.deliveries (
    subscription_id bigint      NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    -- Waiting for this time before the next attempt.
    due_at          timestamptz,
    -- Dead, and holding its stream until an operator acts.
    held_at         timestamptz,
    attempts        integer     NOT NULL DEFAULT 0,
    -- May be claimed. False while it waits for its time, or behind an earlier
    -- delivery of its stream.
    ready           boolean     NOT NULL DEFAULT true,
    tenant          text COLLATE "C" NOT NULL,
    event_id        text COLLATE "C" NOT NULL,
    event_type      text COLLATE "C" NOT NULL,
    asset           text COLLATE "C" CHECK (asset <> ''),
    reason          text,
    PRIMARY KEY (subscription_id, event_id, tenant)
);
-- The order of a stream. A null asset is a stream of its own; the expression
-- carries IS NOT DISTINCT FROM, which no index can, and '' is refused above.
CREATE INDEX deliveries_stream ON postlane.deliveries (subscription_id, (coalesce(asset, '')), created_at, event_id);
CREATE INDEX deliveries_ready ON postlane.deliveries (subscription_id, created_at, event_id) WHERE ready;
CREATE INDEX deliveries_due ON postlane.deliveries (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE postlane.leases (
    subscription_id bigint      NOT NULL,
    fence           bigint      NOT NULL,
    claimed_at      timestamptz NOT NULL,
    -- In no index, so that renewing is a HOT update.
    lease_until     timestamptz NOT NULL,
    attempt         integer     NOT NULL,
    tenant          text COLLATE "C" NOT NULL,
    event_id        text COLLATE "C" NOT NULL,
    asset           text COLLATE "C",
    claimant        text        NOT NULL
) WITH (fillfactor = 70);
-- One in flight: two leases on one stream cannot exist.
CREATE UNIQUE INDEX leases_stream ON postlane.leases (subscription_id, (coalesce(asset, '')), tenant);
CREATE SEQUENCE postlane.fence_seq;

CREATE TABLE postlane.settled (
    subscription_id bigint      NOT NULL,
    created_at      timestamptz NOT NULL,
    settled_at      timestamptz NOT NULL,
    attempts        integer     NOT NULL,
    state           text        NOT NULL CHECK (state IN ('delivered', 'dead', 'discarded')),
    tenant          text COLLATE "C" NOT NULL,
    event_id        text COLLATE "C" NOT NULL,
    event_type      text COLLATE "C" NOT NULL,
    asset           text COLLATE "C",
    reason          text,
    PRIMARY KEY (subscription_id, event_id, tenant)
);
CREATE INDEX settled_stream ON postlane.settled (subscription_id, (coalesce(asset, '')), created_at, event_id);
CREATE INDEX settled_dead ON postlane.settled (subscription_id, created_at, event_id) WHERE state = 'dead';

CREATE TABLE postlane.attempts (
    subscription_id bigint      NOT NULL,
    -- The fence of the claim that made it: unlike the number it never repeats,
    -- also not after a revival, which counts from 1 again.
    fence           bigint      NOT NULL,
    started_at      timestamptz NOT NULL,
    number          integer     NOT NULL,
    duration_ms     integer,
    -- NULL where no answer came. Any number: endpoints answer 0, 20 and 999.
    status          integer,
    tenant          text COLLATE "C" NOT NULL,
    outcome         text        NOT NULL,
    -- The first bytes of the answer as they came, and its headers, so that no
    -- byte sequence can fail to be stored.
    answer          bytea,
    answer_cut      boolean     NOT NULL DEFAULT false,
    headers         bytea,
    -- For operators: may name addresses, and is never shown to a tenant.
    error           text,
    dns_us          integer,
    connect_us      integer,
    tls_us          integer,
    first_byte_us   integer,
    claimant        text        NOT NULL,
    event_id        text COLLATE "C" NOT NULL,
    PRIMARY KEY (subscription_id, event_id, fence, tenant)
);

-- migrate:down
DROP SCHEMA postlane CASCADE;
