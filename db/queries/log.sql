-- The log of deliveries: newest first, a page at a time by seq, without payloads.
-- What is still in a stream and what is settled are two tables, so each list merges
-- the top of two indexes and never sorts more than two pages.

-- name: LogList :many
WITH live AS MATERIALIZED (
    SELECT d.seq, d.event_id, d.event_type, d.asset, d.created_at, d.due_at, NULL::timestamptz AS settled_at, d.reason,
           d.attempts, d.held_at,
           (SELECT l.attempt FROM postlane.leases l
            WHERE l.subscription_id = d.subscription_id AND coalesce(l.asset, '') = coalesce(d.asset, '') AND l.seq = d.seq
            LIMIT 1) AS attempt
    FROM postlane.deliveries d
    WHERE d.subscription_id = @subscription_id AND d.seq < @before::bigint
      AND (@event_type::text = '' OR d.event_type = @event_type::text)
      AND (sqlc.narg('since')::timestamptz IS NULL OR d.created_at >= sqlc.narg('since')::timestamptz)
      AND (sqlc.narg('until')::timestamptz IS NULL OR d.created_at < sqlc.narg('until')::timestamptz)
      AND CASE WHEN d.held_at IS NOT NULL THEN 'dead'
               WHEN (SELECT l.seq FROM postlane.leases l
                     WHERE l.subscription_id = d.subscription_id AND coalesce(l.asset, '') = coalesce(d.asset, '') AND l.seq = d.seq
                     LIMIT 1) IS NOT NULL THEN 'delivering'
               ELSE 'pending' END = ANY (@states::text[])
    ORDER BY d.seq DESC LIMIT @max::integer
),
done AS MATERIALIZED (
    SELECT s.seq, s.event_id, s.event_type, s.asset, s.created_at, s.settled_at, s.reason, s.attempts, s.state
    FROM postlane.settled s
    WHERE s.subscription_id = @subscription_id AND s.seq < @before::bigint
      AND (@event_type::text = '' OR s.event_type = @event_type::text)
      AND (sqlc.narg('since')::timestamptz IS NULL OR s.created_at >= sqlc.narg('since')::timestamptz)
      AND (sqlc.narg('until')::timestamptz IS NULL OR s.created_at < sqlc.narg('until')::timestamptz)
      AND s.state = ANY (@states::text[])
    ORDER BY s.seq DESC LIMIT @max::integer
)
SELECT x.seq, x.event_id, x.event_type, x.asset, x.created_at, x.due_at, x.settled_at, x.held_at, x.reason, x.attempts, x.state
FROM (
    SELECT l.seq, l.event_id, l.event_type, l.asset, l.created_at, l.due_at, l.settled_at, l.held_at, l.reason,
           coalesce(l.attempt, l.attempts) AS attempts,
           CASE WHEN l.held_at IS NOT NULL THEN 'dead' WHEN l.attempt IS NOT NULL THEN 'delivering' ELSE 'pending' END AS state
    FROM live l
    UNION ALL
    SELECT s.seq, s.event_id, s.event_type, s.asset, s.created_at, NULL, s.settled_at, NULL, s.reason, s.attempts, s.state
    FROM done s
) x
ORDER BY x.seq DESC LIMIT @max::integer;

-- name: LogListStream :many
--
-- The same for one asset (NULL: the deliveries without one), by the stream indexes.
WITH live AS MATERIALIZED (
    SELECT d.seq, d.event_id, d.event_type, d.asset, d.created_at, d.due_at, NULL::timestamptz AS settled_at, d.reason,
           d.attempts, d.held_at,
           (SELECT l.attempt FROM postlane.leases l
            WHERE l.subscription_id = d.subscription_id AND coalesce(l.asset, '') = coalesce(d.asset, '') AND l.seq = d.seq
            LIMIT 1) AS attempt
    FROM postlane.deliveries d
    WHERE d.subscription_id = @subscription_id AND d.seq < @before::bigint
      AND coalesce(d.asset, '') = coalesce(sqlc.narg('asset')::text, '') AND d.asset IS NOT DISTINCT FROM sqlc.narg('asset')::text
      AND (@event_type::text = '' OR d.event_type = @event_type::text)
      AND (sqlc.narg('since')::timestamptz IS NULL OR d.created_at >= sqlc.narg('since')::timestamptz)
      AND (sqlc.narg('until')::timestamptz IS NULL OR d.created_at < sqlc.narg('until')::timestamptz)
      AND CASE WHEN d.held_at IS NOT NULL THEN 'dead'
               WHEN (SELECT l.seq FROM postlane.leases l
                     WHERE l.subscription_id = d.subscription_id AND coalesce(l.asset, '') = coalesce(d.asset, '') AND l.seq = d.seq
                     LIMIT 1) IS NOT NULL THEN 'delivering'
               ELSE 'pending' END = ANY (@states::text[])
    ORDER BY d.seq DESC LIMIT @max::integer
),
done AS MATERIALIZED (
    SELECT s.seq, s.event_id, s.event_type, s.asset, s.created_at, s.settled_at, s.reason, s.attempts, s.state
    FROM postlane.settled s
    WHERE s.subscription_id = @subscription_id AND s.seq < @before::bigint
      AND coalesce(s.asset, '') = coalesce(sqlc.narg('asset')::text, '') AND s.asset IS NOT DISTINCT FROM sqlc.narg('asset')::text
      AND (@event_type::text = '' OR s.event_type = @event_type::text)
      AND (sqlc.narg('since')::timestamptz IS NULL OR s.created_at >= sqlc.narg('since')::timestamptz)
      AND (sqlc.narg('until')::timestamptz IS NULL OR s.created_at < sqlc.narg('until')::timestamptz)
      AND s.state = ANY (@states::text[])
    ORDER BY s.seq DESC LIMIT @max::integer
)
SELECT x.seq, x.event_id, x.event_type, x.asset, x.created_at, x.due_at, x.settled_at, x.held_at, x.reason, x.attempts, x.state
FROM (
    SELECT l.seq, l.event_id, l.event_type, l.asset, l.created_at, l.due_at, l.settled_at, l.held_at, l.reason,
           coalesce(l.attempt, l.attempts) AS attempts,
           CASE WHEN l.held_at IS NOT NULL THEN 'dead' WHEN l.attempt IS NOT NULL THEN 'delivering' ELSE 'pending' END AS state
    FROM live l
    UNION ALL
    SELECT s.seq, s.event_id, s.event_type, s.asset, s.created_at, NULL, s.settled_at, NULL, s.reason, s.attempts, s.state
    FROM done s
) x
ORDER BY x.seq DESC LIMIT @max::integer;

-- name: LogAttempts :many
--
-- The attempts of a delivery, first to last, revivals included.
SELECT a.number, a.fence, a.started_at, a.duration_ms, a.status, a.outcome, a.answer, a.answer_cut, a.headers, a.error,
       a.dns_us, a.connect_us, a.tls_us, a.first_byte_us, a.claimant
FROM postlane.attempts a
WHERE a.subscription_id = @subscription_id AND a.seq = @seq
ORDER BY a.fence;

-- name: LogCounts :many
--
-- How many deliveries are in each state, of one subscription or (0) of all.
-- Counts rows: for small histories and tests, not for a page that reloads.
SELECT x.state, count(*) AS deliveries
FROM (
    SELECT CASE WHEN d.held_at IS NOT NULL THEN 'dead'
                WHEN l.seq IS NOT NULL THEN 'delivering'
                ELSE 'pending' END AS state
    FROM postlane.deliveries d
    LEFT JOIN postlane.leases l
      ON l.subscription_id = d.subscription_id AND coalesce(l.asset, '') = coalesce(d.asset, '') AND l.seq = d.seq
    WHERE @subscription_id::bigint = 0 OR d.subscription_id = @subscription_id::bigint
    UNION ALL
    SELECT s.state FROM postlane.settled s
    WHERE @subscription_id::bigint = 0 OR s.subscription_id = @subscription_id::bigint
) x
GROUP BY x.state;

-- name: LogState :one
--
-- The state of one delivery, if the subscription has it.
SELECT CASE WHEN d.held_at IS NOT NULL THEN 'dead'
            WHEN (SELECT l.seq FROM postlane.leases l
                  WHERE l.subscription_id = d.subscription_id AND coalesce(l.asset, '') = coalesce(d.asset, '') AND l.seq = d.seq
                  LIMIT 1) IS NOT NULL THEN 'delivering'
            ELSE 'pending' END AS state
FROM postlane.deliveries d
WHERE d.subscription_id = @subscription_id AND d.seq = @seq
UNION ALL
SELECT s.state FROM postlane.settled s
WHERE s.subscription_id = @subscription_id AND s.seq = @seq;
