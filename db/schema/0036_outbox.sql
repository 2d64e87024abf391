-- The outbox: messages that are not webhooks, on their way to a publisher.
--
--   outbox_messages   what was staged, with the payload's exact bytes, once
--   outbox_pending    what still has to be published, narrow, in order per queue
--   outbox_scheduled  what joins its queue at a later time
--   outbox_leases     who is publishing from which queue right now
--   outbox_holds      the queues whose first message failed, until its next attempt
--   outbox_parked     what was given up, with its error, until an operator acts
--   outbox_published  what was published, when and by whom
--
-- A message is a row of outbox_messages until it is pruned, and a row of exactly
-- one of pending, scheduled, parked and published. So what a claim reads is as
-- small as the backlog, and what was published costs it nothing.
--
-- The order of a queue is seq, allocated at INSERT: exact for the messages of a
-- transaction, and best effort across concurrent ones, of which the one that took
-- the lower number may commit later. Nothing remembers how far it has read, so
-- such a late message is published all the same.
--
-- A lease is on a queue, not on a row: while a claimant holds messages of a queue
-- nobody else can take later ones, and one row is written for a batch of a hundred.

-- migrate:up
CREATE SEQUENCE postlane.outbox_seq;
CREATE SEQUENCE postlane.outbox_fence_seq;

CREATE TABLE postlane.outbox_messages (
    seq             bigint      NOT NULL,
    staged_at       timestamptz NOT NULL DEFAULT now(),
    -- Not to be published before; NULL: at once.
    run_at          timestamptz,
    max_attempts    integer     NOT NULL CHECK (max_attempts > 0),
    id              text COLLATE "C" PRIMARY KEY CHECK (id <> ''),
    queue           text COLLATE "C" NOT NULL CHECK (queue <> ''),
    topic           text COLLATE "C" NOT NULL CHECK (topic <> ''),
    tenant          text COLLATE "C" NOT NULL DEFAULT '',
    idempotency_key text COLLATE "C" CHECK (idempotency_key <> ''),
    -- The W3C trace context of the span that staged it.
    traceparent     text,
    -- Who staged it: for people, decides nothing.
    enqueued_by     text,
    -- An object of strings.
    headers         json,
    payload         bytea       NOT NULL
);
CREATE UNIQUE INDEX outbox_messages_idempotency ON postlane.outbox_messages (tenant, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

CREATE TABLE postlane.outbox_pending (
    seq        bigint      NOT NULL,
    -- Since when it waits: staged, or due.
    since      timestamptz NOT NULL,
    -- Failed and stalled attempts; what is being published now is not counted.
    attempts   integer     NOT NULL DEFAULT 0,
    size       integer     NOT NULL,
    -- Makes its queue visible to claims. False behind a failed message, so that
    -- claims do not step over queues that wait, however many there are.
    ready      boolean     NOT NULL DEFAULT true,
    queue      text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    last_error text,
    PRIMARY KEY (queue, seq)
) WITH (fillfactor = 90);
CREATE INDEX outbox_pending_ready ON postlane.outbox_pending (queue, seq) WHERE ready;

CREATE TABLE postlane.outbox_scheduled (
    due_at timestamptz NOT NULL,
    seq    bigint      NOT NULL,
    size   integer     NOT NULL,
    queue  text COLLATE "C" NOT NULL,
    id     text COLLATE "C" NOT NULL,
    PRIMARY KEY (due_at, seq)
);

CREATE TABLE postlane.outbox_leases (
    fence       bigint      NOT NULL,
    claimed_at  timestamptz NOT NULL,
    -- In no index, so that renewing is a HOT update.
    lease_until timestamptz NOT NULL,
    -- One in flight: two leases on one queue cannot exist.
    queue       text COLLATE "C" PRIMARY KEY,
    claimant    text        NOT NULL,
    -- The messages that are claimed and not settled yet, in order.
    seqs        bigint[]    NOT NULL
) WITH (fillfactor = 70);

CREATE TABLE postlane.outbox_holds (
    -- The message that failed.
    seq   bigint      NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    queue text COLLATE "C" PRIMARY KEY
);
CREATE INDEX outbox_holds_until ON postlane.outbox_holds (until);

CREATE TABLE postlane.outbox_parked (
    seq       bigint      NOT NULL PRIMARY KEY,
    parked_at timestamptz NOT NULL,
    attempts  integer     NOT NULL,
    size      integer     NOT NULL,
    queue     text COLLATE "C" NOT NULL,
    id        text COLLATE "C" NOT NULL UNIQUE,
    error     text        NOT NULL
);

CREATE TABLE postlane.outbox_published (
    seq          bigint      NOT NULL PRIMARY KEY,
    claimed_at   timestamptz NOT NULL,
    published_at timestamptz NOT NULL,
    attempts     integer     NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    claimant     text        NOT NULL
);
CREATE INDEX outbox_published_time ON postlane.outbox_published (published_at);

-- migrate:down
DROP TABLE postlane.outbox_published, postlane.outbox_parked, postlane.outbox_holds, postlane.outbox_leases,
    postlane.outbox_scheduled, postlane.outbox_pending, postlane.outbox_messages;
DROP SEQUENCE postlane.outbox_fence_seq, postlane.outbox_seq;
