-- name: DeliverySettleDelivered :many
--
-- Settles deliveries that an endpoint answered with a 2xx: out of the backlog, into
-- `settled`, with the attempt's evidence. Answers with those whose lease the
-- caller still held; for the others nothing changes. Their leases end with
-- LeaseDrop, and their streams go on with StreamWake, in the same transaction and
-- after this; or the leases move on with LeaseAdvance.
--
-- Each is named with the delivery at which its lease stands, the first of those of
-- the stream that are settled here: none is settled before one that it follows.
--
-- A success sets the failure count of its subscription to 0, and closes its breaker. A
-- row with nothing to forgive is neither locked nor written.
--
-- Locks the leases (so a reclaim steps over them), then the deliveries, and the
-- subscriptions to forgive in the order of their ids. Each row is found by its whole
-- key, once a result.
--
-- A delete's join carries the whole row of what it joins, to look again at one that was
-- changed meanwhile: OFFSET 0 leaves it two columns, without answers and headers.
WITH input AS (
    SELECT unnest(@subscription_ids::bigint[]) AS subscription_id, unnest(@assets::text[]) AS asset,
           unnest(@seqs::bigint[]) AS seq, unnest(@froms::bigint[]) AS from_seq, unnest(@fences::bigint[]) AS fence,
           unnest(@started_ms_ago::bigint[]) AS started_ms_ago, unnest(@durations_ms::integer[]) AS duration_ms,
           unnest(@statuses::integer[]) AS status, unnest(@outcomes::text[]) AS outcome,
           unnest(@answers::bytea[]) AS answer, unnest(@answers_cut::boolean[]) AS answer_cut,
           unnest(@headers::bytea[]) AS headers,
           unnest(@dns_us::integer[]) AS dns_us, unnest(@connect_us::integer[]) AS connect_us,
           unnest(@tls_us::integer[]) AS tls_us, unnest(@first_byte_us::integer[]) AS first_byte_us
),
clock AS MATERIALIZED (
    SELECT coalesce(sqlc.narg('now')::timestamptz, now()) AS at
),
mine AS MATERIALIZED (
    SELECT i.subscription_id, i.seq, i.fence, l.attempt, l.tenant, l.claimant,
           i.started_ms_ago, i.duration_ms, i.status, i.outcome, i.answer, i.answer_cut, i.headers,
           i.dns_us, i.connect_us, i.tls_us, i.first_byte_us
    FROM input i
    CROSS JOIN LATERAL (
        SELECT e.attempt, e.tenant, e.claimant FROM postlane.leases e
        WHERE e.subscription_id = i.subscription_id AND coalesce(e.asset, '') = i.asset
          AND e.seq = i.from_seq AND e.fence = i.fence
        LIMIT 1
        FOR UPDATE OF e
    ) l
),
gone AS (
    DELETE FROM postlane.deliveries d
    USING (SELECT x.subscription_id, x.seq FROM mine x OFFSET 0) m
    WHERE d.subscription_id = m.subscription_id AND d.seq = m.seq
    RETURNING d.subscription_id, d.seq, d.tenant, d.event_id, d.event_type, d.asset, d.created_at, d.attempts
),
logged AS (
    INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, asset, created_at, settled_at, attempts, state)
    SELECT g.subscription_id, g.seq, g.tenant, g.event_id, g.event_type, g.asset, g.created_at, c.at, g.attempts + 1, 'delivered'
    FROM gone g CROSS JOIN clock c
),
tried AS (
    INSERT INTO postlane.attempts (subscription_id, seq, fence, number, started_at, duration_ms, status, tenant, outcome,
                                   answer, answer_cut, headers, dns_us, connect_us, tls_us, first_byte_us, claimant)
    SELECT m.subscription_id, m.seq, m.fence, m.attempt, c.at - m.started_ms_ago * interval '1 millisecond', m.duration_ms,
           m.status, m.tenant, m.outcome, m.answer, m.answer_cut, m.headers, m.dns_us, m.connect_us, m.tls_us, m.first_byte_us, m.claimant
    FROM mine m CROSS JOIN clock c
),
owed AS MATERIALIZED (
    SELECT s.id
    FROM (SELECT DISTINCT m.subscription_id FROM mine m) x
    JOIN postlane.subscriptions s ON s.id = x.subscription_id
    WHERE s.failure_count > 0 OR s.failing
    ORDER BY s.id
    FOR NO KEY UPDATE OF s
),
forgiven AS (
    UPDATE postlane.subscriptions s SET failure_count = 0, failing = false
    FROM owed o WHERE s.id = o.id
),
closed AS (
    DELETE FROM postlane.breakers b USING owed o WHERE b.subscription_id = o.id
)
SELECT m.subscription_id::bigint AS subscription_id, m.seq::bigint AS seq, m.fence::bigint AS fence FROM mine m;

-- name: DeliverySettleFailed :many
--
-- Settles failed attempts. A delivery with attempts left waits delays_ms for the
-- next. One without, or one that met a 410 (gone), is dead: it leaves its stream, or
-- holds it where its subscription says so. A death counts one failure of its
-- subscription, unless it is blameless (the fault was on this side), and the
-- subscription is disabled at its threshold, and at once by a 410. Of a deleted
-- subscription the delivery is discarded and nothing is counted.
--
-- Tells of deaths, held streams and disabled subscriptions: see 0073_operational_events.
--
-- Answers with what became of each whose lease the caller still held: pending,
-- held, dead or discarded, and whether its subscription was disabled here.
-- LeaseDrop and StreamWake follow, as after DeliverySettleDelivered. Subscriptions
-- are locked in the order of their ids.
WITH input AS MATERIALIZED (
    SELECT unnest(@subscription_ids::bigint[]) AS subscription_id, unnest(@assets::text[]) AS asset,
           unnest(@seqs::bigint[]) AS seq, unnest(@froms::bigint[]) AS from_seq, unnest(@fences::bigint[]) AS fence,
           unnest(@gone::boolean[]) AS gone, unnest(@blameless::boolean[]) AS blameless,
           unnest(@delays_ms::bigint[]) AS delay_ms,
           unnest(@started_ms_ago::bigint[]) AS started_ms_ago, unnest(@durations_ms::integer[]) AS duration_ms,
           unnest(@statuses::integer[]) AS status, unnest(@outcomes::text[]) AS outcome,
           unnest(@answers::bytea[]) AS answer, unnest(@answers_cut::boolean[]) AS answer_cut,
           unnest(@headers::bytea[]) AS headers, unnest(@errors::text[]) AS error,
           unnest(@dns_us::integer[]) AS dns_us, unnest(@connect_us::integer[]) AS connect_us,
           unnest(@tls_us::integer[]) AS tls_us, unnest(@first_byte_us::integer[]) AS first_byte_us
),
clock AS MATERIALIZED (
    SELECT coalesce(sqlc.narg('now')::timestamptz, now()) AS at
),
mine AS MATERIALIZED (
    SELECT i.subscription_id, i.seq, i.fence, l.attempt, l.tenant, l.claimant, i.gone, i.blameless, i.delay_ms,
           i.started_ms_ago, i.duration_ms, i.status, i.outcome, i.answer, i.answer_cut, i.headers, i.error,
           i.dns_us, i.connect_us, i.tls_us, i.first_byte_us,
           CASE WHEN s.deleted_at IS NOT NULL THEN 'discarded'
                WHEN NOT i.gone AND l.attempt < s.max_attempts THEN 'pending'
                WHEN s.on_dead = 'hold' THEN 'held'
                ELSE 'dead' END AS state,
           CASE WHEN s.deleted_at IS NOT NULL THEN 'subscription deleted'
                WHEN i.gone THEN 'the endpoint answered 410 Gone'
                ELSE 'attempts used up: ' || i.outcome END AS reason
    FROM input i
    CROSS JOIN LATERAL (
        SELECT e.attempt, e.tenant, e.claimant FROM postlane.leases e
        WHERE e.subscription_id = i.subscription_id AND coalesce(e.asset, '') = i.asset
          AND e.seq = i.from_seq AND e.fence = i.fence
        LIMIT 1
        FOR UPDATE OF e
    ) l
    JOIN postlane.subscriptions s ON s.id = i.subscription_id
),
kept AS (
    UPDATE postlane.deliveries d
    SET attempts = m.attempt, ready = NULL,
        due_at  = CASE WHEN m.state = 'pending' THEN c.at + m.delay_ms * interval '1 millisecond' END,
        held_at = CASE WHEN m.state = 'held' THEN c.at END,
        reason  = CASE WHEN m.state = 'held' THEN m.reason END
    FROM mine m CROSS JOIN clock c
    WHERE d.subscription_id = m.subscription_id AND d.seq = m.seq AND m.state IN ('pending', 'held')
    RETURNING d.subscription_id, d.seq, d.tenant, d.event_id, d.event_type, d.asset, d.attempts, d.reason, d.held_at
),
gone AS (
    DELETE FROM postlane.deliveries d
    USING mine m
    WHERE d.subscription_id = m.subscription_id AND d.seq = m.seq AND m.state IN ('dead', 'discarded')
    RETURNING d.subscription_id, d.seq, d.tenant, d.event_id, d.event_type, d.asset, d.created_at, d.attempts
),
logged AS (
    INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, asset, created_at, settled_at, attempts, state, reason)
    SELECT g.subscription_id, g.seq, g.tenant, g.event_id, g.event_type, g.asset, g.created_at, c.at, g.attempts + 1, m.state, m.reason
    FROM gone g
    JOIN mine m ON m.subscription_id = g.subscription_id AND m.seq = g.seq
    CROSS JOIN clock c
    RETURNING subscription_id, seq, tenant, event_id, event_type, asset, attempts, state, reason
),
tried AS (
    INSERT INTO postlane.attempts (subscription_id, seq, fence, number, started_at, duration_ms, status, tenant, outcome,
                                   answer, answer_cut, headers, error, dns_us, connect_us, tls_us, first_byte_us, claimant)
    SELECT m.subscription_id, m.seq, m.fence, m.attempt, c.at - m.started_ms_ago * interval '1 millisecond', m.duration_ms,
           nullif(m.status, -1), m.tenant, m.outcome, m.answer, m.answer_cut, m.headers, nullif(m.error, ''),
           m.dns_us, m.connect_us, m.tls_us, m.first_byte_us, m.claimant
    FROM mine m CROSS JOIN clock c
),
deaths AS MATERIALIZED (
    SELECT m.subscription_id, count(*)::integer AS died, bool_or(m.gone) AS gone, max(m.reason) AS reason
    FROM mine m WHERE m.state IN ('dead', 'held') AND NOT m.blameless
    GROUP BY m.subscription_id
),
struck AS MATERIALIZED (
    SELECT s.id, s.tenant, s.state, s.failure_count + x.died AS failures,
           CASE WHEN s.state <> 'active' THEN NULL
                WHEN x.gone THEN 'the endpoint answered 410 Gone'
                WHEN s.disable_after > 0 AND s.failure_count + x.died >= s.disable_after
                THEN CASE s.failure_count + x.died WHEN 1 THEN 'a delivery' ELSE (s.failure_count + x.died)::text || ' deliveries in a row' END
                     || ' died, the last with: ' || x.reason
           END AS disabled_by
    FROM deaths x JOIN postlane.subscriptions s ON s.id = x.subscription_id
    ORDER BY s.id
    FOR NO KEY UPDATE OF s
),
charged AS (
    UPDATE postlane.subscriptions s
    SET failure_count = k.failures,
        state        = CASE WHEN k.disabled_by IS NULL THEN s.state ELSE 'disabled' END,
        state_reason = coalesce(k.disabled_by, s.state_reason),
        state_since  = CASE WHEN k.disabled_by IS NULL THEN s.state_since ELSE c.at END,
        revision     = s.revision + CASE WHEN k.disabled_by IS NULL THEN 0 ELSE 1 END,
        updated_at   = c.at
    FROM struck k CROSS JOIN clock c
    WHERE s.id = k.id
),
told AS MATERIALIZED (
    SELECT postlane.tell_dead(x.tenant, x.subscription_id, x.seq, x.event_id, x.event_type, x.asset, x.attempts, x.reason, x.held) AS events
    FROM (
        SELECT l.tenant, l.subscription_id, l.seq, l.event_id, l.event_type, l.asset, l.attempts, l.reason, false AS held
        FROM logged l WHERE l.state = 'dead'
        UNION ALL
        SELECT k.tenant, k.subscription_id, k.seq, k.event_id, k.event_type, k.asset, k.attempts, k.reason, true
        FROM kept k WHERE k.held_at IS NOT NULL
        ORDER BY subscription_id, seq
    ) x
),
-- After the deaths that did it.
told_disabled AS MATERIALIZED (
    SELECT postlane.tell(k.tenant, k.id, 'postlane.subscription.disabled', jsonb_build_object('reason', k.disabled_by)) AS events
    FROM struck k WHERE k.disabled_by IS NOT NULL AND (SELECT count(*) FROM told t) >= 0
)
SELECT m.subscription_id::bigint AS subscription_id, m.seq::bigint AS seq, m.fence::bigint AS fence, m.state::text AS state,
       coalesce((SELECT k.disabled_by FROM struck k WHERE k.id = m.subscription_id), '')::text AS disabled_by,
       ((SELECT coalesce(sum(t.events), 0) FROM told t) + (SELECT coalesce(sum(t.events), 0) FROM told_disabled t))::bigint AS told
FROM mine m;

-- name: DeliveryPostpone :many
--
-- Lets deliveries wait delays_ms without charging the attempt: what stood in the way
-- was on this side, and trying again at once would meet it again. LeaseDrop follows.
WITH input AS MATERIALIZED (
    SELECT unnest(@subscription_ids::bigint[]) AS subscription_id, unnest(@assets::text[]) AS asset,
           unnest(@seqs::bigint[]) AS seq, unnest(@froms::bigint[]) AS from_seq,
           unnest(@fences::bigint[]) AS fence, unnest(@delays_ms::bigint[]) AS delay_ms
),
mine AS MATERIALIZED (
    SELECT i.subscription_id, i.seq, i.fence, i.delay_ms
    FROM input i
    CROSS JOIN LATERAL (
        SELECT e.attempt FROM postlane.leases e
        WHERE e.subscription_id = i.subscription_id AND coalesce(e.asset, '') = i.asset
          AND e.seq = i.from_seq AND e.fence = i.fence
        LIMIT 1
        FOR UPDATE OF e
    ) l
),
kept AS (
    UPDATE postlane.deliveries d
    SET ready = NULL, due_at = coalesce(sqlc.narg('now')::timestamptz, now()) + m.delay_ms * interval '1 millisecond'
    FROM mine m
    WHERE d.subscription_id = m.subscription_id AND d.seq = m.seq
)
SELECT m.subscription_id::bigint AS subscription_id, m.seq::bigint AS seq, m.fence::bigint AS fence FROM mine m;

-- name: DeliveryRipen :one
--
-- Makes deliveries whose time has come ready, the longest due first, up to max, and
-- says how many, and in how many milliseconds the next is due (-1: none waits).
--
-- Where the endpoint fails, a retry takes its old place, before what was not tried yet:
-- probes then use up the attempts of a few deliveries, and a dead endpoint is disabled
-- as soon as if nothing else waited.
WITH clock AS MATERIALIZED (
    SELECT coalesce(sqlc.narg('now')::timestamptz, now()) AS at
),
due AS MATERIALIZED (
    SELECT d.subscription_id, d.seq
    FROM postlane.deliveries d
    WHERE d.due_at IS NOT NULL AND d.due_at <= (SELECT c.at FROM clock c)
    ORDER BY d.due_at
    LIMIT @max::integer
    FOR UPDATE OF d SKIP LOCKED
),
ripe AS (
    UPDATE postlane.deliveries d
    SET ready = CASE WHEN (SELECT s.failing FROM postlane.subscriptions s WHERE s.id = d.subscription_id LIMIT 1) THEN d.seq
                     ELSE nextval('postlane.delivery_seq') END,
        due_at = NULL
    FROM due u
    WHERE d.subscription_id = u.subscription_id AND d.seq = u.seq
    RETURNING 1
)
SELECT (SELECT count(*) FROM ripe)::bigint AS ripened,
       coalesce((SELECT ceil(extract(epoch FROM d.due_at - (SELECT c.at FROM clock c)) * 1000)
                 FROM postlane.deliveries d
                 WHERE d.due_at IS NOT NULL AND d.due_at > (SELECT c.at FROM clock c)
                 ORDER BY d.due_at LIMIT 1), -1)::bigint AS next_ms;

-- name: DeliveryAsset :one
SELECT coalesce(d.asset, '')::text AS asset
FROM postlane.deliveries d
WHERE d.subscription_id = @subscription_id AND d.seq = @seq;

-- name: DeliveryLock :one
--
-- Locks a delivery that occupies its stream, so that no claim takes it until the
-- transaction ends. StreamLock comes first. What is in flight is told by
-- DeliveryInFlight, as a later statement: a claim that ended while this waited shows
-- only there.
SELECT d.subscription_id, d.seq, d.tenant, d.asset, d.held_at, d.due_at
FROM postlane.deliveries d
WHERE d.subscription_id = @subscription_id AND d.seq = @seq
FOR UPDATE;

-- name: DeliveryInFlight :one
--
-- Whether a delivery is being sent, or may be under the lease that its stream has
-- now.
SELECT count(*) > 0
FROM postlane.leases l
WHERE l.subscription_id = @subscription_id AND coalesce(l.asset, '') = @asset::text AND l.seq <= @seq
  AND (SELECT count(*) FROM (SELECT 1 FROM postlane.deliveries e
                             WHERE e.subscription_id = @subscription_id AND coalesce(e.asset, '') = @asset::text
                               AND e.seq > l.seq AND e.seq <= @seq
                             LIMIT l.ahead + 1) behind) <= l.ahead;

-- name: DeliveryRemove :one
--
-- Takes a delivery out of its stream into the given final state, with the reason.
-- The caller holds its lock and wakes the stream afterwards.
WITH gone AS (
    DELETE FROM postlane.deliveries d
    WHERE d.subscription_id = @subscription_id AND d.seq = @seq
    RETURNING d.subscription_id, d.seq, d.tenant, d.event_id, d.event_type, d.asset, d.created_at, d.attempts, d.reason
)
INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, asset, created_at, settled_at, attempts, state, reason)
SELECT g.subscription_id, g.seq, g.tenant, g.event_id, g.event_type, g.asset, g.created_at,
       coalesce(sqlc.narg('now')::timestamptz, now()), g.attempts, @state::text, coalesce(sqlc.narg('why')::text, g.reason)
FROM gone g
RETURNING seq;

-- name: DeliveryReviveHeld :one
--
-- Returns a dead letter that holds its stream to pending, with its attempts at 0.
UPDATE postlane.deliveries d
SET held_at = NULL, reason = NULL, attempts = 0, ready = nextval('postlane.delivery_seq')
WHERE d.subscription_id = @subscription_id AND d.seq = @seq AND d.held_at IS NOT NULL
RETURNING d.seq;

-- name: DeliveryReviveDead :one
--
-- Returns a dead letter to the place in its stream that its seq gives it, pending,
-- with its attempts at 0. No row: it is not a dead letter of this subscription, or
-- its event is no longer kept.
WITH back AS (
    DELETE FROM postlane.settled s
    WHERE s.subscription_id = @subscription_id AND s.seq = @seq AND s.state = 'dead'
      AND (SELECT e.seq FROM postlane.events e WHERE e.tenant = s.tenant AND e.id = s.event_id LIMIT 1) IS NOT NULL
    RETURNING s.subscription_id, s.seq, s.tenant, s.event_id, s.event_type, s.asset, s.created_at
)
INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, created_at, ready)
SELECT b.subscription_id, b.seq, b.tenant, b.event_id, b.event_type, b.asset, b.created_at, nextval('postlane.delivery_seq')
FROM back b
RETURNING seq;

-- name: DeliveryDiscardDead :one
UPDATE postlane.settled s
SET state = 'discarded', settled_at = coalesce(sqlc.narg('now')::timestamptz, now()), reason = @why::text
WHERE s.subscription_id = @subscription_id AND s.seq = @seq AND s.state = 'dead'
RETURNING s.seq;

-- name: DeliveryDiscardDeleted :one
--
-- Discards what deleted subscriptions still have in their streams, up to max rows,
-- and says how many. What is in flight is left to its settling.
WITH orphaned AS MATERIALIZED (
    SELECT o.subscription_id, o.seq
    FROM postlane.subscriptions s
    CROSS JOIN LATERAL (
        SELECT d.subscription_id, d.seq
        FROM postlane.deliveries d
        WHERE d.subscription_id = s.id
          AND (SELECT l.seq FROM postlane.leases l
               WHERE l.subscription_id = d.subscription_id AND coalesce(l.asset, '') = coalesce(d.asset, '') LIMIT 1) IS NULL
        ORDER BY d.seq
        LIMIT @max::integer
        FOR UPDATE OF d SKIP LOCKED
    ) o
    WHERE s.deleted_at IS NOT NULL
    LIMIT @max::integer
),
gone AS (
    DELETE FROM postlane.deliveries d
    USING orphaned o
    WHERE d.subscription_id = o.subscription_id AND d.seq = o.seq
    RETURNING d.subscription_id, d.seq, d.tenant, d.event_id, d.event_type, d.asset, d.created_at, d.attempts
),
logged AS (
    INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, asset, created_at, settled_at, attempts, state, reason)
    SELECT g.subscription_id, g.seq, g.tenant, g.event_id, g.event_type, g.asset, g.created_at,
           coalesce(sqlc.narg('now')::timestamptz, now()), g.attempts, 'discarded', 'subscription deleted'
    FROM gone g
)
SELECT count(*) FROM gone;
