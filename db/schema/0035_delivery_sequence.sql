-- The order of a stream becomes a sequence.
--
-- now() is the transaction's timestamp, so under 0004 two events of one
-- transaction tie on created_at and the event's id, which says nothing about
-- order, breaks the tie. clock_timestamp() would break it but steps back
-- when the clock is corrected.
--
-- What delivery_seq promises:
--   * It is allocated at INSERT, in the order of the events of a call and of
--     the calls of a transaction: within a transaction the order is exact.
--   * It is the same for every subscription of an event, so (subscription_id,
--     seq) names a delivery, and lets an event reach a subscription only once.
-- What it does not promise:
--   * It is not the order of commits. Of two concurrent transactions the one
--     that took the lower number may commit later; a delivery of the other may
--     have left by then. Between concurrent transactions the order is best effort.
--   * It has gaps: a rolled-back transaction leaves its numbers unused.
--
-- That is right here: which of two concurrent transactions came "first" is
-- defined by nothing but a lock they both take, and a lock in every enqueue
-- would serialise callers that need no order. Who needs it takes the lock
-- (delivery.Serialize) before writing: then the numbers of an asset follow the
-- order of commits. Reading by a watermark of transaction ids instead would let
-- any open transaction stop all delivery.
--
-- `ready` becomes a rank from the same sequence: new whenever a delivery becomes
-- ready, so claims consume the ready index from left to right, and what becomes
-- ready later lies to the right of everything consumed.

-- migrate:up
CREATE SEQUENCE postlane.delivery_seq;

ALTER TABLE postlane.events ADD COLUMN seq bigint;
ALTER TABLE postlane.deliveries ADD COLUMN seq bigint;
ALTER TABLE postlane.leases ADD COLUMN seq bigint;
ALTER TABLE postlane.settled ADD COLUMN seq bigint;
ALTER TABLE postlane.attempts ADD COLUMN seq bigint;

UPDATE postlane.events e SET seq = o.seq
FROM (SELECT tenant, id, nextval('postlane.delivery_seq') AS seq
      FROM (SELECT tenant, id FROM postlane.events ORDER BY created_at, id) q) o
WHERE e.tenant = o.tenant AND e.id = o.id;
UPDATE postlane.deliveries d SET seq = e.seq FROM postlane.events e WHERE e.tenant = d.tenant AND e.id = d.event_id;
UPDATE postlane.leases l SET seq = e.seq FROM postlane.events e WHERE e.tenant = l.tenant AND e.id = l.event_id;
UPDATE postlane.settled s SET seq = e.seq FROM postlane.events e WHERE e.tenant = s.tenant AND e.id = s.event_id;
UPDATE postlane.attempts a SET seq = e.seq FROM postlane.events e WHERE e.tenant = a.tenant AND e.id = a.event_id;

ALTER TABLE postlane.events ALTER COLUMN seq SET NOT NULL;
ALTER TABLE postlane.deliveries ALTER COLUMN seq SET NOT NULL;
ALTER TABLE postlane.leases ALTER COLUMN seq SET NOT NULL;
ALTER TABLE postlane.settled ALTER COLUMN seq SET NOT NULL;
ALTER TABLE postlane.attempts ALTER COLUMN seq SET NOT NULL;

DROP INDEX postlane.deliveries_stream, postlane.deliveries_ready, postlane.settled_stream, postlane.settled_dead;
ALTER TABLE postlane.deliveries
    ALTER COLUMN ready DROP NOT NULL,
    ALTER COLUMN ready DROP DEFAULT,
    ALTER COLUMN ready TYPE bigint USING CASE WHEN ready THEN seq END,
    DROP CONSTRAINT deliveries_pkey,
    ADD PRIMARY KEY (subscription_id, seq, tenant);
ALTER TABLE postlane.settled
    DROP CONSTRAINT settled_pkey,
    ADD PRIMARY KEY (subscription_id, seq, tenant);
ALTER TABLE postlane.attempts
    DROP CONSTRAINT attempts_pkey,
    ADD PRIMARY KEY (subscription_id, seq, fence, tenant),
    DROP COLUMN event_id;

CREATE INDEX deliveries_stream ON postlane.deliveries (subscription_id, (coalesce(asset, '')), seq);
CREATE INDEX deliveries_ready ON postlane.deliveries (subscription_id, ready) WHERE ready IS NOT NULL;
CREATE INDEX settled_stream ON postlane.settled (subscription_id, (coalesce(asset, '')), seq);
CREATE INDEX settled_dead ON postlane.settled (subscription_id, seq) WHERE state = 'dead';

-- migrate:down
DROP INDEX postlane.deliveries_stream, postlane.deliveries_ready, postlane.settled_stream, postlane.settled_dead;
ALTER TABLE postlane.attempts ADD COLUMN event_id text COLLATE "C";
UPDATE postlane.attempts a SET event_id = e.id FROM postlane.events e WHERE e.tenant = a.tenant AND e.seq = a.seq;
DELETE FROM postlane.attempts WHERE event_id IS NULL;
ALTER TABLE postlane.attempts
    ALTER COLUMN event_id SET NOT NULL,
    DROP CONSTRAINT attempts_pkey,
    ADD PRIMARY KEY (subscription_id, event_id, fence, tenant),
    DROP COLUMN seq;
ALTER TABLE postlane.settled
    DROP CONSTRAINT settled_pkey,
    ADD PRIMARY KEY (subscription_id, event_id, tenant),
    DROP COLUMN seq;
ALTER TABLE postlane.leases DROP COLUMN seq;
ALTER TABLE postlane.deliveries
    DROP CONSTRAINT deliveries_pkey,
    ADD PRIMARY KEY (subscription_id, event_id, tenant),
    ALTER COLUMN ready TYPE boolean USING ready IS NOT NULL,
    ALTER COLUMN ready SET DEFAULT true,
    ALTER COLUMN ready SET NOT NULL,
    DROP COLUMN seq;
ALTER TABLE postlane.events DROP COLUMN seq;
CREATE INDEX deliveries_stream ON postlane.deliveries (subscription_id, (coalesce(asset, '')), created_at, event_id);
CREATE INDEX deliveries_ready ON postlane.deliveries (subscription_id, created_at, event_id) WHERE ready;
CREATE INDEX settled_stream ON postlane.settled (subscription_id, (coalesce(asset, '')), created_at, event_id);
CREATE INDEX settled_dead ON postlane.settled (subscription_id, created_at, event_id) WHERE state = 'dead';
DROP SEQUENCE postlane.delivery_seq;
