-- What the HTTP API needs: keys, a record of what people did, which attempts came
-- after a manual retry, and two settings of a subscription: v1a signatures and
-- headers of its own.
--
--   api_keys    who may call the API; of a key only its hash is kept
--   audit       every change that somebody asked for, and what came of it
--   revivals    every return of a dead letter to its stream, by whom

-- migrate:up
ALTER TABLE postlane.subscriptions
    -- The public key of v1a signatures; NULL: signed with v1 alone.
    ADD COLUMN public_key     text,
    -- A JSON object of names and values, or what the key named by headers_key_id
    -- made of it: a value may be a credential. The names are for people.
    ADD COLUMN headers        bytea,
    ADD COLUMN headers_key_id text,
    ADD COLUMN header_names   text[];

ALTER TABLE postlane.subscription_secrets
    ADD COLUMN kind text NOT NULL DEFAULT 'v1' CHECK (kind IN ('v1', 'v1a'));

CREATE TABLE postlane.api_keys (
    id           bigint      PRIMARY KEY CHECK (id > 0),
    -- SHA-256 of the key. A key is 256 random bits, so a slow hash would add nothing.
    hash         bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    -- Its first characters, by which a person tells which one it is.
    hint         text        NOT NULL,
    name         text        NOT NULL,
    -- NULL: an operator's.
    tenant       text COLLATE "C" CHECK (tenant <> ''),
    scope        text        NOT NULL CHECK (scope IN ('read', 'write')),
    created_at   timestamptz NOT NULL DEFAULT now(),
    -- To the minute.
    last_used_at timestamptz,
    revoked_at   timestamptz
) WITH (fillfactor = 80);

CREATE TABLE postlane.audit (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    -- Whose thing it was, NULL where it is nobody's or not known.
    tenant     text COLLATE "C",
    -- The id of a key, or the word operator.
    actor      text        NOT NULL,
    actor_name text        NOT NULL,
    action     text        NOT NULL,
    target     text,
    -- What was asked for, without any secret, payload or value of a header.
    detail     text,
    -- The status of the answer and "ok", or the code of the refusal. NULL: it was
    -- begun, and the process ended before it could tell.
    status     integer,
    outcome    text
);
CREATE INDEX audit_tenant ON postlane.audit (tenant, id);

-- An attempt whose fence is greater than after_fence came after the revival.
CREATE TABLE postlane.revivals (
    subscription_id bigint      NOT NULL,
    seq             bigint      NOT NULL,
    number          integer     NOT NULL,
    after_fence     bigint      NOT NULL,
    revived_at      timestamptz NOT NULL DEFAULT now(),
    -- '': a program that did not say.
    revived_by      text        NOT NULL,
    PRIMARY KEY (subscription_id, seq, number)
);

-- migrate:down
DROP TABLE postlane.revivals, postlane.audit, postlane.api_keys;
DELETE FROM postlane.subscription_secrets WHERE kind = 'v1a';
ALTER TABLE postlane.subscription_secrets DROP COLUMN kind;
ALTER TABLE postlane.subscriptions
    DROP COLUMN public_key, DROP COLUMN headers, DROP COLUMN headers_key_id, DROP COLUMN header_names;
