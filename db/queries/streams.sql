-- name: StreamWake :one
--
-- Makes the first delivery of each of the streams ready, unless it is, waits for its
-- time, or holds the stream. Runs after every way out of a stream (delivered,
-- dead, discarded, released), as a later statement of the same transaction: its
-- snapshot then shows what DeliveryPark marked while the exit waited for it.
WITH u AS (
    SELECT unnest(@subscription_ids::bigint[]) AS subscription_id, unnest(@assets::text[]) AS asset
),
next AS MATERIALIZED (
    SELECT n.subscription_id, n.seq
    FROM u
    CROSS JOIN LATERAL (
        SELECT e.subscription_id, e.seq, e.ready, e.due_at, e.held_at
        FROM postlane.deliveries e
        WHERE e.subscription_id = u.subscription_id AND coalesce(e.asset, '') = u.asset
        ORDER BY e.seq LIMIT 1
    ) n
    WHERE n.ready IS NULL AND n.due_at IS NULL AND n.held_at IS NULL
),
woken AS (
    UPDATE postlane.deliveries d
    SET ready = nextval('postlane.delivery_seq')
    FROM next n
    WHERE d.subscription_id = n.subscription_id AND d.seq = n.seq
      AND d.ready IS NULL AND d.due_at IS NULL AND d.held_at IS NULL
    RETURNING 1
)
SELECT count(*) FROM woken;

-- name: StreamLock :one
--
-- Locks the first delivery of a stream, so that no claim takes the stream until the
-- transaction ends. Comes before the lock of any delivery in it: settling locks in
-- that order too. No row: the first was settled while this waited, or the stream is
-- empty.
SELECT d.seq
FROM postlane.deliveries d
WHERE d.subscription_id = @subscription_id AND coalesce(d.asset, '') = @asset::text
ORDER BY d.seq LIMIT 1
FOR UPDATE;

-- name: StreamWakeOrphans :many
--
-- A safety net: walks up to max streams from a position and wakes any whose first
-- delivery is neither ready nor waiting nor held nor in flight. Such a stream would
-- wait for ever; no way into this state is known, and the count shows it.
WITH RECURSIVE walk (subscription_id, asset, n) AS (
    SELECT f.subscription_id, f.asset COLLATE "C" AS asset, 0 AS n
    FROM (SELECT @after_subscription::bigint AS subscription_id, @after_asset::text AS asset) f
    UNION ALL
    SELECT s.subscription_id, s.asset, w.n + 1
    FROM walk w
    CROSS JOIN LATERAL (
        SELECT d.subscription_id, coalesce(d.asset, '') AS asset
        FROM postlane.deliveries d
        WHERE (d.subscription_id, coalesce(d.asset, '')) > (w.subscription_id, w.asset)
        ORDER BY d.subscription_id, coalesce(d.asset, '') LIMIT 1
    ) s
    WHERE w.n < @max::integer
),
orphan AS MATERIALIZED (
    SELECT h.subscription_id, h.seq
    FROM walk w
    CROSS JOIN LATERAL (
        SELECT d.subscription_id, d.seq, d.ready, d.due_at, d.held_at
        FROM postlane.deliveries d
        WHERE d.subscription_id = w.subscription_id AND coalesce(d.asset, '') = w.asset
        ORDER BY d.seq LIMIT 1
    ) h
    WHERE w.n > 0 AND h.ready IS NULL AND h.due_at IS NULL AND h.held_at IS NULL
      AND (SELECT l.seq FROM postlane.leases l
           WHERE l.subscription_id = w.subscription_id AND coalesce(l.asset, '') = w.asset LIMIT 1) IS NULL
),
woken AS (
    UPDATE postlane.deliveries d SET ready = nextval('postlane.delivery_seq')
    FROM orphan o
    WHERE d.subscription_id = o.subscription_id AND d.seq = o.seq
      AND d.ready IS NULL AND d.due_at IS NULL AND d.held_at IS NULL
    RETURNING 1
)
SELECT w.subscription_id, w.asset::text AS asset, w.n, (SELECT count(*) FROM woken)::bigint AS woken
FROM walk w ORDER BY w.n DESC LIMIT 1;

-- name: StreamList :many
--
-- What is waiting, a row a stream: its first delivery, why it waits, how many
-- stand in it. Walks the order index stream by stream from a position, so a page
-- costs what it shows and not the backlog; the depth is counted up to 1,000.
WITH RECURSIVE walk (asset, n) AS (
    SELECT CASE WHEN sqlc.narg('after_asset')::text IS NULL
                THEN (SELECT coalesce(d.asset, '') FROM postlane.deliveries d
                      WHERE d.subscription_id = @subscription_id
                      ORDER BY coalesce(d.asset, '') LIMIT 1)
                ELSE (SELECT coalesce(d.asset, '') FROM postlane.deliveries d
                      WHERE d.subscription_id = @subscription_id AND coalesce(d.asset, '') > sqlc.narg('after_asset')::text
                      ORDER BY coalesce(d.asset, '') LIMIT 1)
           END COLLATE "C", 1
    UNION ALL
    SELECT s.asset, w.n + 1
    FROM walk w
    CROSS JOIN LATERAL (
        SELECT coalesce(d.asset, '') AS asset
        FROM postlane.deliveries d
        WHERE d.subscription_id = @subscription_id AND coalesce(d.asset, '') > w.asset
        ORDER BY coalesce(d.asset, '') LIMIT 1
    ) s
    WHERE w.n < @max::integer
)
SELECT h.asset, h.seq, h.event_id, h.event_type, h.attempts, h.created_at, h.due_at, h.held_at, h.reason,
       coalesce(l.attempt, 0)::integer AS attempt,
       coalesce(floor(extract(epoch FROM now() - l.claimed_at) * 1000), -1)::bigint AS in_flight_ms,
       (h.ready IS NOT NULL)::boolean AS ready,
       (SELECT count(*) FROM (SELECT 1 FROM postlane.deliveries d
                              WHERE d.subscription_id = @subscription_id AND coalesce(d.asset, '') = w.asset
                              LIMIT 1000) c)::bigint AS depth
FROM walk w
CROSS JOIN LATERAL (
    SELECT d.* FROM postlane.deliveries d
    WHERE d.subscription_id = @subscription_id AND coalesce(d.asset, '') = w.asset
    ORDER BY d.seq LIMIT 1
) h
LEFT JOIN LATERAL (
    SELECT l.claimed_at, l.attempt FROM postlane.leases l
    WHERE l.subscription_id = @subscription_id AND coalesce(l.asset, '') = w.asset LIMIT 1
) l ON true
ORDER BY w.n;

-- name: StreamOldestDue :one
--
-- For how many milliseconds the longest waiting delivery that may be claimed has
-- waited since its event was written, over the active subscriptions with no open breaker
-- (up to 1,000 of them); -1 if none waits. What waits for a place in its subscription's
-- rate limit may be claimed once there is one, and has waited since then.
WITH RECURSIVE walk (id, n) AS (
    SELECT (SELECT d.subscription_id FROM postlane.deliveries d
            WHERE d.ready IS NOT NULL ORDER BY d.subscription_id LIMIT 1), 1
    UNION ALL
    SELECT (SELECT d.subscription_id FROM postlane.deliveries d
            WHERE d.ready IS NOT NULL AND d.subscription_id > w.id
            ORDER BY d.subscription_id LIMIT 1), w.n + 1
    FROM walk w WHERE w.id IS NOT NULL AND w.n < 1000
)
SELECT coalesce(floor(extract(epoch FROM max(k.now - may.since) FILTER (WHERE may.since <= k.now)) * 1000), -1)::bigint
FROM (SELECT coalesce(sqlc.narg('now')::timestamptz, now()) AS now) k
CROSS JOIN walk w
JOIN postlane.subscriptions s ON s.id = w.id AND s.state = 'active' AND s.deleted_at IS NULL
     AND (NOT s.failing OR (SELECT b.probe_at FROM postlane.breakers b WHERE b.subscription_id = w.id LIMIT 1) IS NULL)
CROSS JOIN LATERAL (
    SELECT d.created_at FROM postlane.deliveries d
    WHERE d.subscription_id = w.id AND d.ready IS NOT NULL
    ORDER BY d.ready LIMIT 1
) h
CROSS JOIN LATERAL (
    -- A pace far ahead is that of a clock which was; a claim does not wait for it.
    SELECT CASE WHEN s.rate_limit IS NULL THEN h.created_at
                ELSE greatest(h.created_at, (SELECT p.next_at FROM postlane.paces p
                                             WHERE p.subscription_id = w.id
                                               AND p.next_at <= k.now + interval '1 minute' + p.interval_us * interval '1 microsecond'
                                             LIMIT 1)) END AS since
    OFFSET 0
) may;
