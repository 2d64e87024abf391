-- name: DeliveryClaim :many
--
-- Takes up to max streams for claimant, and answers with the first delivery of each.
--
-- Promises. A claimed delivery is the first of its stream, and its stream has no
-- other in flight. No two claims return the same delivery. Never more than max
-- streams, and of one subscription never more than its free slots. Rows that
-- somebody has locked are stepped over, and so is all that waits behind them.
--
-- A first attempt's lease says how many deliveries behind it the claimant may send
-- under it (DeliveryAhead).
--
-- Of a subscription with a rate limit a claim takes places in time: as many requests as
-- begin within wait_ms, one every interval from the later of now and the first free
-- place on, and none behind them. The places are taken whatever becomes of the claim.
-- wait_ms is a minute at most: a first free place further away than that and the interval
-- was written by a clock that was ahead, and counts for nothing.
--
-- Of a subscription whose breaker is open a claim takes one delivery, the probe, once it
-- is due, and puts the next probe off for as long as this one's lease.
--
-- Others pay nothing for either: the row that tells the slots says that there is no limit
-- and no breaker.
--
-- How it reads:
--   walk      visits the active subscriptions that have something ready, starting
--             after after and going round once. Two ordered indexes leap over
--             each other (ready rows, active subscriptions), so neither ten
--             thousand idle subscriptions nor ten thousand paused ones with a
--             backlog are stepped through one by one. It ends when look_ms are over:
--             after a long outage there are a million rows behind others, which
--             DeliveryPark moves away and no claim should look through to its end.
--   known     are three parallel arrays in the order of their ids, what ClaimFloors
--             answered a while ago. Reading begins there.
--   picked    takes from each, in the order they became ready, what is first in
--             its stream and has no lease on it, up to the free slots. It looks at
--             no more than window ready rows of a subscription: what stands there
--             behind an earlier one is moved out of the way by DeliveryPark. Each
--             row is locked by its key, once it is known to be free, so that
--             reading stops with the last one taken.
--   taken     writes the leases. The unique index on the stream decides between
--             two claims that could not see each other: the second takes nothing.
--             Ordered, so that two claims cannot wait for each other in a circle.
--   paced,    move the first free place and the time of the next probe on. Their rows
--   probed    are locked before they are looked at, so of two claims the second sees
--             what the first took, or steps over it.
--
-- Locks: the picked rows, and the paces and breakers looked at, until the end of the transaction.
--
-- A scalar sub-select with LIMIT 1 stays an index probe whatever the planner
-- believes of tables it has never analyzed; EXISTS may become a hash of a whole
-- table. The limits sit in materialized parts, so that no join runs them twice.
WITH RECURSIVE walk (round, id, hit) AS (
    SELECT 0, @after::bigint, false
    UNION ALL
    SELECT w.round + step.wrap, step.id, step.hit
    FROM walk w
    CROSS JOIN LATERAL (
        SELECT (@known_ids::bigint[])[width_bucket(w.id, @known_ids::bigint[]) + 1] AS id
        OFFSET 0
    ) known
    CROSS JOIN LATERAL (
        SELECT coalesce((SELECT d.subscription_id FROM postlane.deliveries d
                         WHERE d.ready IS NOT NULL AND d.subscription_id > w.id
                           AND d.subscription_id <= coalesce(known.id - 1, 9223372036854775807)
                         ORDER BY d.subscription_id LIMIT 1), known.id) AS id
        OFFSET 0
    ) ready
    CROSS JOIN LATERAL (
        SELECT (SELECT s.id FROM postlane.subscriptions s
                WHERE s.state = 'active' AND s.deleted_at IS NULL AND s.id >= ready.id
                ORDER BY s.id LIMIT 1) AS id
        OFFSET 0
    ) active
    CROSS JOIN LATERAL (
        SELECT CASE WHEN active.id IS NULL THEN 1 ELSE 0 END AS wrap,
               CASE WHEN active.id IS NULL THEN -1
                    WHEN active.id = ready.id THEN active.id
                    ELSE active.id - 1 END AS id,
               coalesce(active.id = ready.id, false) AS hit
        OFFSET 0
    ) step
    WHERE (w.round = 0 OR (w.round = 1 AND w.id < @after::bigint))
      AND clock_timestamp() < transaction_timestamp() + (@look_ms::bigint) * interval '1 millisecond'
),
claim AS MATERIALIZED (
    SELECT nextval('postlane.fence_seq') AS fence,
           coalesce(sqlc.narg('now')::timestamptz, now()) AS began,
           @lease_ms::bigint AS lease_ms,
           @wait_ms::bigint AS wait_ms,
           @claimant::text AS claimant
),
picked AS MATERIALIZED (
    SELECT c.subscription_id, c.seq, c.tenant, c.event_id, c.asset, c.attempts, free.paced, free.failing
    FROM walk w
    CROSS JOIN LATERAL (
        SELECT coalesce((@known_ready::bigint[])[at.n], 0) AS ready, coalesce((@known_fences::bigint[])[at.n], 0) AS fence
        FROM (SELECT CASE WHEN (@known_ids::bigint[])[width_bucket(w.id, @known_ids::bigint[])] = w.id
                          THEN width_bucket(w.id, @known_ids::bigint[]) END AS n) at
        OFFSET 0
    ) floor
    CROSS JOIN LATERAL (
        SELECT least(coalesce(s.max_in_flight, @max_in_flight::integer), @max_in_flight::integer)
               - (SELECT count(*) FROM (SELECT 1 FROM postlane.leases l
                                        WHERE l.subscription_id + 0 = w.id AND l.fence + 0 >= floor.fence
                                        ORDER BY l.fence + 0 LIMIT @max_in_flight::integer) held) AS slots,
               s.rate_limit IS NOT NULL AS paced, s.failing
        FROM postlane.subscriptions s
        WHERE s.id = w.id
        OFFSET 0
    ) free
    CROSS JOIN LATERAL (
        SELECT CASE WHEN free.paced AND free.slots > 0
                    THEN least(free.slots, coalesce((
                        SELECT (k.wait_ms * 1000 - CASE WHEN p.next_at <= k.began + k.wait_ms * interval '1 millisecond'
                                                        THEN greatest(extract(epoch FROM p.next_at - k.began) * 1000000, 0)::bigint ELSE 0 END) / p.interval_us + 1
                        FROM postlane.paces p CROSS JOIN claim k
                        WHERE p.subscription_id = w.id
                          AND (p.next_at <= k.began + k.wait_ms * interval '1 millisecond'
                               OR p.next_at > k.began + interval '1 minute' + p.interval_us * interval '1 microsecond')
                        FOR NO KEY UPDATE OF p SKIP LOCKED), 0))
                    ELSE greatest(free.slots, 0) END::bigint AS slots
        OFFSET 0
    ) pace
    CROSS JOIN LATERAL (
        SELECT CASE WHEN free.failing AND pace.slots > 0
                    THEN coalesce((
                        SELECT CASE WHEN b.probe_at IS NULL THEN pace.slots ELSE 1 END
                        FROM postlane.breakers b CROSS JOIN claim k
                        WHERE b.subscription_id = w.id AND (b.probe_at IS NULL OR b.probe_at <= k.began)
                        FOR NO KEY UPDATE OF b SKIP LOCKED), 0)
                    ELSE pace.slots END::bigint AS slots,
               -- A retry that ripened while it was failing stands in its old place.
               CASE WHEN free.failing THEN 0 ELSE floor.ready END AS ready
        OFFSET 0
    ) may
    CROSS JOIN LATERAL (
        SELECT f.subscription_id, f.seq, f.tenant, f.event_id, f.asset, f.attempts
        FROM (
            SELECT d.subscription_id, d.seq, d.asset
            FROM postlane.deliveries d
            WHERE d.subscription_id = w.id AND d.ready IS NOT NULL AND d.ready >= may.ready
            ORDER BY d.ready
            LIMIT @window_size::integer
        ) r
        CROSS JOIN LATERAL (
            SELECT x.subscription_id, x.seq, x.tenant, x.event_id, x.asset, x.attempts
            FROM postlane.deliveries x
            WHERE x.subscription_id = r.subscription_id AND x.seq = r.seq AND x.ready IS NOT NULL
            LIMIT 1
            FOR UPDATE OF x SKIP LOCKED
        ) f
        WHERE (SELECT l.seq FROM postlane.leases l
               WHERE l.subscription_id = r.subscription_id
                 AND coalesce(l.asset, '') = coalesce(r.asset, '')
                 AND l.asset IS NOT DISTINCT FROM r.asset
               LIMIT 1) IS NULL
          AND (SELECT e.seq FROM postlane.deliveries e
               WHERE e.subscription_id = r.subscription_id
                 AND coalesce(e.asset, '') = coalesce(r.asset, '')
                 AND e.asset IS NOT DISTINCT FROM r.asset
               ORDER BY e.seq LIMIT 1) = r.seq
        LIMIT may.slots
    ) c
    WHERE w.hit AND (w.round = 0 OR w.id <= @after::bigint)
    LIMIT @max::integer
),
taken AS (
    INSERT INTO postlane.leases (subscription_id, seq, fence, attempt, ahead, claimed_at, lease_until, tenant, event_id, asset, claimant)
    SELECT p.subscription_id, p.seq, c.fence, p.attempts + 1, CASE WHEN p.attempts = 0 AND NOT p.paced AND NOT p.failing THEN @ahead::integer ELSE 0 END,
           c.began, c.began + c.lease_ms * interval '1 millisecond', p.tenant, p.event_id, p.asset, c.claimant
    FROM picked p CROSS JOIN claim c
    ORDER BY p.subscription_id, coalesce(p.asset, '')
    ON CONFLICT (subscription_id, (coalesce(asset, '')), tenant) DO NOTHING
    RETURNING subscription_id, seq, fence, attempt, ahead, tenant, event_id, asset
),
paced AS (
    UPDATE postlane.paces p
    SET next_at = CASE WHEN p.next_at > n.began + interval '1 minute' + p.interval_us * interval '1 microsecond' THEN n.began
                       ELSE greatest(p.next_at, n.began) END + n.taken * p.interval_us * interval '1 microsecond'
    FROM (SELECT t.subscription_id, c.began, count(*) AS taken
          FROM taken t CROSS JOIN claim c
          WHERE t.subscription_id = ANY (ARRAY(SELECT DISTINCT k.subscription_id FROM picked k WHERE k.paced))
          GROUP BY t.subscription_id, c.began) n
    WHERE p.subscription_id = n.subscription_id
    RETURNING p.subscription_id, p.interval_us,
              (extract(epoch FROM p.next_at - n.began) * 1000000)::bigint - n.taken * p.interval_us AS wait_us
),
probed AS (
    UPDATE postlane.breakers b
    SET probe_at = c.began + greatest(c.lease_ms, b.pause_ms) * interval '1 millisecond'
    FROM (SELECT DISTINCT t.subscription_id FROM taken t
          WHERE t.subscription_id = ANY (ARRAY(SELECT DISTINCT k.subscription_id FROM picked k WHERE k.failing))) n
    CROSS JOIN claim c
    WHERE b.subscription_id = n.subscription_id AND b.probe_at IS NOT NULL
)
SELECT t.subscription_id, t.seq, t.fence, t.attempt, t.ahead, t.tenant, t.event_id, t.asset,
       (SELECT s.revision FROM postlane.subscriptions s WHERE s.id = t.subscription_id LIMIT 1)::bigint AS revision,
       coalesce((SELECT p.seq FROM postlane.settled p
                 WHERE p.subscription_id = t.subscription_id
                   AND coalesce(p.asset, '') = coalesce(t.asset, '')
                   AND p.asset IS NOT DISTINCT FROM t.asset
                   AND p.seq < t.seq
                 ORDER BY p.seq DESC LIMIT 1), 0)::bigint AS prev_seq,
       e.type AS event_type, e.content_type, coalesce(e.traceparent, '')::text AS traceparent,
       octet_length(e.payload)::integer AS payload_size,
       -- A large payload is read just before it is sent, so that a claim's
       -- answer stays small.
       CASE WHEN octet_length(e.payload) <= 65536 THEN e.payload END AS payload,
       coalesce(a.wait_us, 0)::bigint AS wait_us, coalesce(a.interval_us, 0)::bigint AS interval_us
FROM taken t
LEFT JOIN paced a ON a.subscription_id = t.subscription_id
CROSS JOIN LATERAL (
    SELECT v.type, v.content_type, v.traceparent, v.payload FROM postlane.events v
    WHERE v.tenant = t.tenant AND v.id = t.event_id
    LIMIT 1
) e;

-- name: DeliveryAhead :many
--
-- What follows claimed deliveries in their streams, in order, up to ahead each. number
-- is the place of a stream in the arrays, and fit says whether the delivery could be sent
-- in its turn: a run ends before the first that could not. revision is the subscription's
-- now: what was enqueued after a change of it is not to be sent as the claim saw it.
--
-- Comes after the transaction that wrote the leases. The claim's own snapshot may be
-- older than another claim's settling in the same stream, which it would not see.
SELECT u.number::integer AS number, a.seq, a.event_id, (a.due_at IS NULL AND a.held_at IS NULL AND a.attempts = 0)::boolean AS fit,
       s.revision, e.type AS event_type, e.content_type, coalesce(e.traceparent, '')::text AS traceparent,
       octet_length(e.payload)::integer AS payload_size,
       CASE WHEN octet_length(e.payload) <= 4096 THEN e.payload END AS payload
FROM (SELECT generate_subscripts(@subscription_ids::bigint[], 1) AS number, unnest(@subscription_ids::bigint[]) AS subscription_id,
             unnest(@assets::text[]) AS asset, unnest(@seqs::bigint[]) AS seq) u
CROSS JOIN LATERAL (
    SELECT v.revision FROM postlane.subscriptions v WHERE v.id = u.subscription_id LIMIT 1
) s
CROSS JOIN LATERAL (
    SELECT d.seq, d.tenant, d.event_id, d.due_at, d.held_at, d.attempts
    FROM postlane.deliveries d
    WHERE d.subscription_id = u.subscription_id AND coalesce(d.asset, '') = u.asset AND d.seq > u.seq
    ORDER BY d.seq
    LIMIT @ahead::integer
) a
CROSS JOIN LATERAL (
    SELECT v.type, v.content_type, v.traceparent, v.payload FROM postlane.events v
    WHERE v.tenant = a.tenant AND v.id = a.event_id
    LIMIT 1
) e;

-- name: ClaimBegin :exec
--
-- Comes before DeliveryClaim in its transaction, as a statement of its own: whoever
-- paused a subscription can then see which claims might not have seen the pause.
SELECT pg_advisory_xact_lock_shared(1886351212, 1);

-- name: ClaimFloors :many
--
-- Of subscriptions the lowest rank of what is ready and the lowest fence of what is
-- in flight, looked for from the given ones on. While somebody holds an old snapshot,
-- what was consumed stays in the indexes, dead, and every claim would step over all of
-- it. Both numbers rise, so what comes lies above; but what a transaction wrote and
-- commits late lies below, and waits for a claim without floors.
SELECT u.id::bigint AS id,
       coalesce((SELECT d.ready FROM postlane.deliveries d
                 WHERE d.subscription_id = u.id AND d.ready IS NOT NULL AND d.ready >= u.ready
                 ORDER BY d.ready LIMIT 1), u.ready)::bigint AS ready,
       coalesce((SELECT l.fence FROM postlane.leases l
                 WHERE l.subscription_id + 0 = u.id AND l.fence + 0 >= u.fence
                 ORDER BY l.fence + 0 LIMIT 1), u.fence)::bigint AS fence
FROM (SELECT unnest(@ids::bigint[]) AS id, unnest(@ready::bigint[]) AS ready, unnest(@fences::bigint[]) AS fence) u;

-- name: ClaimRunning :many
--
-- The claims that are under way. A claim that is not in the answer, or is in no
-- later one, began after this statement or has ended.
SELECT l.virtualtransaction::text
FROM pg_catalog.pg_locks l
WHERE l.locktype = 'advisory' AND l.classid = 1886351212 AND l.objid = 1 AND l.objsubid = 2
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database());

-- name: DeliveryPark :one
--
-- Moves ready deliveries that stand behind an earlier one of their stream out of
-- the ready index, up to max, of the subscriptions after after; says how many, and the
-- last subscription of which it moved any. Each is moved at most once
-- before its turn comes, so a deep stream costs every claim together O(1) a row.
--
-- Comes after a claim that was short. Of the active subscriptions with a free slot
-- that claim took all it could see, so what is ready there is in flight or behind
-- something, but for what its window did not reach. Others merely wait: with every
-- slot taken, for their rate limit or a probe, or with a backlog paused, looking through their
-- windows (2,000 rows, 3,600 pages each) would cost more than all the claims.
--
-- Begins to read at the floors, as a claim does.
--
-- The race: the earlier one may be settled at this moment, and its settling has
-- looked for a successor before this statement marks it; nobody would wake it
-- again. So the earlier row is locked first. If it can't be, or is gone, nothing is
-- marked. If it can, settling waits for this statement, and the wake-up that
-- follows, a statement with a newer snapshot, sees the mark.
WITH RECURSIVE walk (id, hit) AS (
    SELECT @after::bigint, false
    UNION ALL
    SELECT step.id, step.hit
    FROM walk w
    CROSS JOIN LATERAL (
        SELECT (@known_ids::bigint[])[width_bucket(w.id, @known_ids::bigint[]) + 1] AS id
        OFFSET 0
    ) known
    CROSS JOIN LATERAL (
        SELECT coalesce((SELECT d.subscription_id FROM postlane.deliveries d
                         WHERE d.ready IS NOT NULL AND d.subscription_id > w.id
                           AND d.subscription_id <= coalesce(known.id - 1, 9223372036854775807)
                         ORDER BY d.subscription_id LIMIT 1), known.id) AS id
        OFFSET 0
    ) ready
    CROSS JOIN LATERAL (
        SELECT (SELECT s.id FROM postlane.subscriptions s
                WHERE s.state = 'active' AND s.deleted_at IS NULL AND s.id >= ready.id
                ORDER BY s.id LIMIT 1) AS id
        OFFSET 0
    ) active
    CROSS JOIN LATERAL (
        SELECT CASE WHEN active.id = ready.id THEN active.id ELSE active.id - 1 END AS id,
               active.id = ready.id AS hit
        OFFSET 0
    ) step
    WHERE active.id IS NOT NULL
),
short AS MATERIALIZED (
    SELECT w.id, CASE WHEN s.failing THEN 0 ELSE floor.ready END AS ready
    FROM walk w
    JOIN postlane.subscriptions s ON s.id = w.id
    CROSS JOIN LATERAL (
        SELECT coalesce((@known_ready::bigint[])[at.n], 0) AS ready, coalesce((@known_fences::bigint[])[at.n], 0) AS fence
        FROM (SELECT CASE WHEN (@known_ids::bigint[])[width_bucket(w.id, @known_ids::bigint[])] = w.id
                          THEN width_bucket(w.id, @known_ids::bigint[]) END AS n) at
        OFFSET 0
    ) floor
    WHERE w.hit
      AND (SELECT count(*) FROM (SELECT 1 FROM postlane.leases l
                                 WHERE l.subscription_id + 0 = w.id AND l.fence + 0 >= floor.fence
                                 ORDER BY l.fence + 0 LIMIT @max_in_flight::integer) held)
          < least(coalesce(s.max_in_flight, @max_in_flight::integer), @max_in_flight::integer)
      AND (s.rate_limit IS NULL
           OR (SELECT p.next_at FROM postlane.paces p WHERE p.subscription_id = w.id LIMIT 1) <= coalesce(sqlc.narg('now')::timestamptz, now()))
      AND (NOT s.failing
           OR coalesce((SELECT b.probe_at FROM postlane.breakers b WHERE b.subscription_id = w.id LIMIT 1) <= coalesce(sqlc.narg('now')::timestamptz, now()), true))
),
blocked AS MATERIALIZED (
    SELECT b.subscription_id, b.seq, b.first_seq
    FROM short w
    CROSS JOIN LATERAL (
        SELECT d.subscription_id, d.seq, first.seq AS first_seq
        FROM postlane.deliveries d
        CROSS JOIN LATERAL (
            SELECT e.seq FROM postlane.deliveries e
            WHERE e.subscription_id = d.subscription_id
              AND coalesce(e.asset, '') = coalesce(d.asset, '')
              AND e.asset IS NOT DISTINCT FROM d.asset
            ORDER BY e.seq LIMIT 1
        ) first
        WHERE d.subscription_id = w.id
          AND d.ready IS NOT NULL
          AND d.ready >= w.ready
          AND d.ready <= coalesce(
              (SELECT n.ready FROM postlane.deliveries n
               WHERE n.subscription_id = w.id AND n.ready IS NOT NULL AND n.ready >= w.ready
               ORDER BY n.ready OFFSET @window_size::integer LIMIT 1), 9223372036854775807)
          AND first.seq < d.seq
        ORDER BY d.ready
        FOR UPDATE OF d SKIP LOCKED
    ) b
    LIMIT @max::integer
),
standing AS MATERIALIZED (
    SELECT f.subscription_id, f.seq
    FROM (SELECT DISTINCT subscription_id, first_seq FROM blocked) b
    JOIN postlane.deliveries f ON f.subscription_id = b.subscription_id AND f.seq = b.first_seq
    FOR KEY SHARE OF f SKIP LOCKED
),
parked AS (
    UPDATE postlane.deliveries d SET ready = NULL
    FROM blocked b, standing f
    WHERE f.subscription_id = b.subscription_id AND f.seq = b.first_seq
      AND d.subscription_id = b.subscription_id AND d.seq = b.seq
      AND d.ready IS NOT NULL
    RETURNING d.subscription_id
)
SELECT count(*) AS parked, coalesce(max(p.subscription_id), 0)::bigint AS last FROM parked p;

-- name: DeliveryWaiting :one
--
-- Whether any delivery is ready, and in how many milliseconds the next is due (-1:
-- none waits for its time). It is all that an idle dispatcher asks: two index probes,
-- in no transaction and without plan settings, since the order by makes the index
-- the cheapest plan also without statistics. What is ready may belong to a paused
-- subscription, or be in flight: a claim decides.
SELECT (SELECT count(*) > 0
        FROM (SELECT 1 FROM postlane.deliveries d
              WHERE d.ready IS NOT NULL ORDER BY d.subscription_id, d.ready LIMIT 1) r)::boolean AS ready,
       coalesce((SELECT greatest(ceil(extract(epoch FROM d.due_at - coalesce(sqlc.narg('now')::timestamptz, now())) * 1000), 0)
                 FROM postlane.deliveries d
                 WHERE d.due_at IS NOT NULL ORDER BY d.due_at LIMIT 1), -1)::bigint AS next_ms;
