-- The log of deliveries, a page at a time by seq, without payloads. What is still in a
-- stream and what is settled are two tables, so a list merges the top of several
-- indexes and never sorts more than three pages.

-- name: LogSettings :exec
--
-- Comes first in the transactions of LogList, LogListOldest and of whatever else
-- a filter can make expensive. A plan of its own for each call folds away the
-- sources that the filter leaves out and finds the partial indexes of rare states:
-- with one plan for all, the dead letters among a million delivered would be looked
-- for by reading the million. A page is the end of an index that is in its order; the
-- planner may prefer a bitmap, which reads and sorts all that a subscription ever had.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('jit', 'off', true),
       set_config('statement_timeout', (@timeout_ms::integer)::text, true);

-- name: LogBounds :one
--
-- Between which seqs, neither included, a time range can have deliveries of a
-- subscription: a search by halves over its log, some dozens of index probes, so that
-- a list of some hours need not read all that is newer. It goes by the times being in
-- the order of the seqs to within a day. They are, but for what was written while the
-- server's clock was wrong by more. Such a row is found without the filter.
WITH RECURSIVE given AS (
    SELECT @subscription_id::bigint AS subscription_id,
           sqlc.narg('since')::timestamptz - interval '1 day' AS since, sqlc.narg('until')::timestamptz + interval '1 day' AS until
),
ends AS MATERIALIZED (
    SELECT 1 AS source,
           (SELECT s.seq FROM postlane.settled s WHERE s.subscription_id = g.subscription_id ORDER BY s.seq LIMIT 1) AS lo,
           (SELECT s.seq FROM postlane.settled s WHERE s.subscription_id = g.subscription_id ORDER BY s.seq DESC LIMIT 1) AS hi
    FROM given g
    UNION ALL
    SELECT 2,
           (SELECT d.seq FROM postlane.deliveries d WHERE d.subscription_id = g.subscription_id ORDER BY d.seq LIMIT 1),
           (SELECT d.seq FROM postlane.deliveries d WHERE d.subscription_id = g.subscription_id ORDER BY d.seq DESC LIMIT 1)
    FROM given g
),
-- below is a seq whose time is before t, above one whose time is not.
search (source, upper, t, lo, hi, below, above) AS (
    SELECT e.source, w.upper, w.t, e.lo - 1, e.hi + 1, NULL::bigint, NULL::bigint
    FROM ends e
    CROSS JOIN (SELECT true AS upper, g.until AS t FROM given g UNION ALL SELECT false, g.since FROM given g) w
    WHERE e.lo IS NOT NULL AND w.t IS NOT NULL
    UNION ALL
    SELECT s.source, s.upper, s.t,
           CASE WHEN p.created_at < s.t THEN p.seq ELSE s.lo END,
           CASE WHEN p.created_at < s.t THEN s.hi ELSE (s.lo + s.hi) / 2 END,
           CASE WHEN p.created_at < s.t THEN p.seq ELSE s.below END,
           CASE WHEN p.created_at < s.t THEN s.above ELSE coalesce(p.seq, s.above) END
    FROM search s
    CROSS JOIN given g
    LEFT JOIN LATERAL (
        (SELECT x.seq, x.created_at FROM postlane.settled x
         WHERE s.source = 1 AND x.subscription_id = g.subscription_id AND x.seq > (s.lo + s.hi) / 2 ORDER BY x.seq LIMIT 1)
        UNION ALL
        (SELECT d.seq, d.created_at FROM postlane.deliveries d
         WHERE s.source = 2 AND d.subscription_id = g.subscription_id AND d.seq > (s.lo + s.hi) / 2 ORDER BY d.seq LIMIT 1)
    ) p ON true
    WHERE s.hi - s.lo > 1
)
SELECT coalesce(max(s.below) FILTER (WHERE NOT s.upper), 0)::bigint AS after,
       coalesce(min(s.above) FILTER (WHERE s.upper), 9223372036854775807)::bigint AS before
FROM search s;

-- name: LogList :many
--
-- Newest first, before the given seq. pending, delivering, dead and done say which
-- sources the states name; states are those of what is settled.
WITH live AS MATERIALIZED (
    SELECT d.seq, d.event_id, d.event_type, d.asset, d.created_at, d.due_at, d.reason, d.attempts, d.held_at,
           (SELECT l.attempt FROM postlane.leases l
            WHERE l.subscription_id = d.subscription_id AND coalesce(l.asset, '') = coalesce(d.asset, '') AND l.seq = d.seq
            LIMIT 1) AS attempt
    FROM postlane.deliveries d
    WHERE d.subscription_id = @subscription_id AND d.seq < @before::bigint AND d.seq > @after::bigint
      AND ((@dead::boolean AND d.held_at IS NOT NULL)
           OR (@pending::boolean AND d.held_at IS NULL
               AND (@delivering::boolean
                    OR (SELECT l.seq FROM postlane.leases l
                        WHERE l.subscription_id = d.subscription_id AND coalesce(l.asset, '') = coalesce(d.asset, '') AND l.seq = d.seq
                        LIMIT 1) IS NULL)))
      AND (NOT @of_asset::boolean OR coalesce(d.asset, '') = @asset::text)
      AND (@event_type::text = '' OR d.event_type = @event_type::text)
      AND (sqlc.narg('since')::timestamptz IS NULL OR d.created_at >= sqlc.narg('since')::timestamptz)
      AND (sqlc.narg('until')::timestamptz IS NULL OR d.created_at < sqlc.narg('until')::timestamptz)
    ORDER BY d.seq DESC LIMIT @max::integer
),
flying AS MATERIALIZED (
    SELECT d.seq, d.event_id, d.event_type, d.asset, d.created_at, d.due_at, d.reason, d.attempts, d.held_at, l.attempt
    FROM postlane.leases l
    JOIN postlane.deliveries d ON d.subscription_id = l.subscription_id AND d.seq = l.seq AND d.tenant = l.tenant
    WHERE @delivering::boolean AND NOT @pending::boolean
      AND l.subscription_id = @subscription_id AND l.seq < @before::bigint AND l.seq > @after::bigint
      AND (NOT @of_asset::boolean OR coalesce(l.asset, '') = @asset::text)
      AND (@event_type::text = '' OR d.event_type = @event_type::text)
      AND (sqlc.narg('since')::timestamptz IS NULL OR d.created_at >= sqlc.narg('since')::timestamptz)
      AND (sqlc.narg('until')::timestamptz IS NULL OR d.created_at < sqlc.narg('until')::timestamptz)
    ORDER BY l.seq DESC LIMIT @max::integer
),
done AS MATERIALIZED (
    SELECT s.seq, s.event_id, s.event_type, s.asset, s.created_at, s.settled_at, s.reason, s.attempts, s.state
    FROM postlane.settled s
    WHERE @done::boolean AND s.subscription_id = @subscription_id AND s.seq < @before::bigint AND s.seq > @after::bigint
      AND s.state = ANY (@states::text[])
      AND (NOT @of_asset::boolean OR coalesce(s.asset, '') = @asset::text)
      AND (@event_type::text = '' OR s.event_type = @event_type::text)
      AND (sqlc.narg('since')::timestamptz IS NULL OR s.created_at >= sqlc.narg('since')::timestamptz)
      AND (sqlc.narg('until')::timestamptz IS NULL OR s.created_at < sqlc.narg('until')::timestamptz)
    ORDER BY s.seq DESC LIMIT @max::integer
)
SELECT x.seq, x.event_id, x.event_type, x.asset, x.created_at, x.due_at, x.settled_at, x.held_at, x.reason, x.attempts, x.state
FROM (
    SELECT l.seq, l.event_id, l.event_type, l.asset, l.created_at, l.due_at, NULL::timestamptz AS settled_at, l.held_at, l.reason,
           coalesce(l.attempt, l.attempts) AS attempts,
           CASE WHEN l.held_at IS NOT NULL THEN 'dead' WHEN l.attempt IS NOT NULL THEN 'delivering' ELSE 'pending' END AS state
    FROM live l
    UNION ALL
    SELECT f.seq, f.event_id, f.event_type, f.asset, f.created_at, f.due_at, NULL, f.held_at, f.reason, f.attempt, 'delivering'
    FROM flying f
    UNION ALL
    SELECT s.seq, s.event_id, s.event_type, s.asset, s.created_at, NULL, s.settled_at, NULL, s.reason, s.attempts, s.state
    FROM done s
) x
ORDER BY x.seq DESC LIMIT @max::integer;

-- name: LogListOldest :many
--
-- The same, oldest first, after the given seq.
WITH live AS MATERIALIZED (
    SELECT d.seq, d.event_id, d.event_type, d.asset, d.created_at, d.due_at, d.reason, d.attempts, d.held_at,
           (SELECT l.attempt FROM postlane.leases l
            WHERE l.subscription_id = d.subscription_id AND coalesce(l.asset, '') = coalesce(d.asset, '') AND l.seq = d.seq
            LIMIT 1) AS attempt
    FROM postlane.deliveries d
    WHERE d.subscription_id = @subscription_id AND d.seq < @before::bigint AND d.seq > @after::bigint
      AND ((@dead::boolean AND d.held_at IS NOT NULL)
           OR (@pending::boolean AND d.held_at IS NULL
               AND (@delivering::boolean
                    OR (SELECT l.seq FROM postlane.leases l
                        WHERE l.subscription_id = d.subscription_id AND coalesce(l.asset, '') = coalesce(d.asset, '') AND l.seq = d.seq
                        LIMIT 1) IS NULL)))
      AND (NOT @of_asset::boolean OR coalesce(d.asset, '') = @asset::text)
      AND (@event_type::text = '' OR d.event_type = @event_type::text)
      AND (sqlc.narg('since')::timestamptz IS NULL OR d.created_at >= sqlc.narg('since')::timestamptz)
      AND (sqlc.narg('until')::timestamptz IS NULL OR d.created_at < sqlc.narg('until')::timestamptz)
    ORDER BY d.seq ASC LIMIT @max::integer
),
flying AS MATERIALIZED (
    SELECT d.seq, d.event_id, d.event_type, d.asset, d.created_at, d.due_at, d.reason, d.attempts, d.held_at, l.attempt
    FROM postlane.leases l
    JOIN postlane.deliveries d ON d.subscription_id = l.subscription_id AND d.seq = l.seq AND d.tenant = l.tenant
    WHERE @delivering::boolean AND NOT @pending::boolean
      AND l.subscription_id = @subscription_id AND l.seq < @before::bigint AND l.seq > @after::bigint
      AND (NOT @of_asset::boolean OR coalesce(l.asset, '') = @asset::text)
      AND (@event_type::text = '' OR d.event_type = @event_type::text)
      AND (sqlc.narg('since')::timestamptz IS NULL OR d.created_at >= sqlc.narg('since')::timestamptz)
      AND (sqlc.narg('until')::timestamptz IS NULL OR d.created_at < sqlc.narg('until')::timestamptz)
    ORDER BY l.seq ASC LIMIT @max::integer
),
done AS MATERIALIZED (
    SELECT s.seq, s.event_id, s.event_type, s.asset, s.created_at, s.settled_at, s.reason, s.attempts, s.state
    FROM postlane.settled s
    WHERE @done::boolean AND s.subscription_id = @subscription_id AND s.seq < @before::bigint AND s.seq > @after::bigint
      AND s.state = ANY (@states::text[])
      AND (NOT @of_asset::boolean OR coalesce(s.asset, '') = @asset::text)
      AND (@event_type::text = '' OR s.event_type = @event_type::text)
      AND (sqlc.narg('since')::timestamptz IS NULL OR s.created_at >= sqlc.narg('since')::timestamptz)
      AND (sqlc.narg('until')::timestamptz IS NULL OR s.created_at < sqlc.narg('until')::timestamptz)
    ORDER BY s.seq ASC LIMIT @max::integer
)
SELECT x.seq, x.event_id, x.event_type, x.asset, x.created_at, x.due_at, x.settled_at, x.held_at, x.reason, x.attempts, x.state
FROM (
    SELECT l.seq, l.event_id, l.event_type, l.asset, l.created_at, l.due_at, NULL::timestamptz AS settled_at, l.held_at, l.reason,
           coalesce(l.attempt, l.attempts) AS attempts,
           CASE WHEN l.held_at IS NOT NULL THEN 'dead' WHEN l.attempt IS NOT NULL THEN 'delivering' ELSE 'pending' END AS state
    FROM live l
    UNION ALL
    SELECT f.seq, f.event_id, f.event_type, f.asset, f.created_at, f.due_at, NULL, f.held_at, f.reason, f.attempt, 'delivering'
    FROM flying f
    UNION ALL
    SELECT s.seq, s.event_id, s.event_type, s.asset, s.created_at, NULL, s.settled_at, NULL, s.reason, s.attempts, s.state
    FROM done s
) x
ORDER BY x.seq ASC LIMIT @max::integer;

-- name: LogWindow :many
--
-- How far the next so many entries before a seq reach, newest first: the seq of the one
-- behind them, and when it was written; no row if there are not so many. A filter that
-- no index carries, as that by event type, is looked for between the two, so that a page
-- costs what it reads and not what the log holds. Counts by the index that the states
-- allow: of the dead letters, of what was not delivered, of an asset, or of all.
SELECT w.seq, coalesce((SELECT s.created_at FROM postlane.settled s WHERE s.subscription_id = @subscription_id AND s.seq = w.seq LIMIT 1),
                       (SELECT d.created_at FROM postlane.deliveries d WHERE d.subscription_id = @subscription_id AND d.seq = w.seq LIMIT 1),
                       now())::timestamptz AS at
FROM (
    (SELECT d.seq
     FROM postlane.deliveries d
     WHERE @live::boolean AND d.subscription_id = @subscription_id AND d.seq < @before::bigint AND d.seq > @after::bigint
       AND (NOT @held_only::boolean OR d.held_at IS NOT NULL)
       AND (NOT @of_asset::boolean OR coalesce(d.asset, '') = @asset::text)
     ORDER BY d.seq DESC OFFSET @entries::integer LIMIT 1)
    UNION ALL
    (SELECT s.seq
     FROM postlane.settled s
     WHERE @done::boolean AND s.subscription_id = @subscription_id AND s.seq < @before::bigint AND s.seq > @after::bigint
       AND (NOT @dead_only::boolean OR s.state = 'dead')
       AND (NOT @undelivered_only::boolean OR s.state <> 'delivered')
       AND (NOT @of_asset::boolean OR coalesce(s.asset, '') = @asset::text)
     ORDER BY s.seq DESC OFFSET @entries::integer LIMIT 1)
) w
ORDER BY w.seq DESC LIMIT 1;

-- name: LogWindowOldest :many
--
-- The same, oldest first, after a seq.
SELECT w.seq, coalesce((SELECT s.created_at FROM postlane.settled s WHERE s.subscription_id = @subscription_id AND s.seq = w.seq LIMIT 1),
                       (SELECT d.created_at FROM postlane.deliveries d WHERE d.subscription_id = @subscription_id AND d.seq = w.seq LIMIT 1),
                       now())::timestamptz AS at
FROM (
    (SELECT d.seq
     FROM postlane.deliveries d
     WHERE @live::boolean AND d.subscription_id = @subscription_id AND d.seq < @before::bigint AND d.seq > @after::bigint
       AND (NOT @held_only::boolean OR d.held_at IS NOT NULL)
       AND (NOT @of_asset::boolean OR coalesce(d.asset, '') = @asset::text)
     ORDER BY d.seq ASC OFFSET @entries::integer LIMIT 1)
    UNION ALL
    (SELECT s.seq
     FROM postlane.settled s
     WHERE @done::boolean AND s.subscription_id = @subscription_id AND s.seq < @before::bigint AND s.seq > @after::bigint
       AND (NOT @dead_only::boolean OR s.state = 'dead')
       AND (NOT @undelivered_only::boolean OR s.state <> 'delivered')
       AND (NOT @of_asset::boolean OR coalesce(s.asset, '') = @asset::text)
     ORDER BY s.seq ASC OFFSET @entries::integer LIMIT 1)
) w
ORDER BY w.seq ASC LIMIT 1;

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
