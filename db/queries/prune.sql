-- Removing what is over, oldest first, in batches that are each a transaction of their
-- own. A pass walks what is old in the order of an index, from where the batch before
-- ended, so what it keeps is met once a pass. Nothing here touches a delivery that is
-- pending, in flight or holding its stream, nor the event of one.
--
-- Kept for so many milliseconds, where 0 is for ever.

-- name: PruneNext :one
--
-- The next subscription with a log, in the order of ids, and whether its oldest entry is
-- from before the given times. No row: that was the last. One probe of the primary key.
WITH given AS MATERIALIZED (
    SELECT coalesce(sqlc.narg('now')::timestamptz, now()) - interval '1 millisecond' * @youngest_ms::bigint AS cutoff
)
SELECT s.subscription_id, (s.created_at < (SELECT g.cutoff FROM given g))::boolean AS old
FROM postlane.settled s
WHERE s.subscription_id > @after::bigint
ORDER BY s.subscription_id, s.seq
LIMIT 1;

-- name: PruneDeliveries :one
--
-- Removes what was settled too long ago of a subscription's next max entries, with the
-- attempts and revivals: delivered and discarded ones after settled_ms, dead letters
-- after dead_ms. met counts the entries, old those that were written long enough ago;
-- last is where the next batch begins.
--
-- Locks the rows that it removes. One that is revived at the same moment is gone from
-- here when its lock is had, and keeps its attempts.
WITH clock AS MATERIALIZED (
    SELECT coalesce(sqlc.narg('now')::timestamptz, now()) AS at
),
given AS MATERIALIZED (
    SELECT @subscription_id::bigint AS subscription_id,
           c.at - nullif(@settled_ms::bigint, 0) * interval '1 millisecond' AS settled,
           c.at - nullif(@dead_ms::bigint, 0) * interval '1 millisecond' AS dead
    FROM clock c
),
batch AS MATERIALIZED (
    SELECT s.seq, s.created_at < greatest(g.settled, g.dead) AS old,
           s.settled_at < CASE WHEN s.state = 'dead' THEN g.dead ELSE g.settled END AS over
    FROM given g
    CROSS JOIN LATERAL (
        SELECT x.seq, x.created_at, x.settled_at, x.state FROM postlane.settled x
        WHERE x.subscription_id = g.subscription_id AND x.seq > @after::bigint
        ORDER BY x.seq LIMIT @max::integer
    ) s
),
gone AS (
    DELETE FROM postlane.settled s
    USING given g
    WHERE s.subscription_id = g.subscription_id AND s.seq = ANY (array(SELECT b.seq FROM batch b WHERE b.over))
      AND s.settled_at < CASE WHEN s.state = 'dead' THEN g.dead ELSE g.settled END
    RETURNING s.seq
),
tried AS (
    DELETE FROM postlane.attempts a
    USING given g
    WHERE a.subscription_id = g.subscription_id AND a.seq = ANY (array(SELECT o.seq FROM gone o))
    RETURNING a.seq
),
revived AS (
    DELETE FROM postlane.revivals r
    USING given g
    WHERE r.subscription_id = g.subscription_id AND r.seq = ANY (array(SELECT o.seq FROM gone o))
),
replayed AS (
    DELETE FROM postlane.replayed r
    USING given g
    WHERE r.subscription_id = g.subscription_id AND r.seq = ANY (array(SELECT o.seq FROM gone o))
)
SELECT (SELECT count(*) FROM gone)::bigint AS deliveries,
       (SELECT count(*) FROM tried)::bigint AS attempts,
       (SELECT count(*) FROM batch)::bigint AS met,
       (SELECT count(*) FROM batch b WHERE b.old)::bigint AS old,
       coalesce((SELECT max(b.seq) FROM batch b), 0)::bigint AS last;

-- name: PruneEvents :one
--
-- Removes those of the next max events that were written more than keep_ms ago and that
-- no delivery needs: none that occupies its stream, no dead letter that could be
-- revived. What needs them is looked for subscription by subscription of their tenants,
-- two probes each; and among their replays. met, old and last are as above.
WITH given AS MATERIALIZED (
    SELECT coalesce(sqlc.narg('now')::timestamptz, now()) - interval '1 millisecond' * @keep_ms::bigint AS cutoff
),
batch AS MATERIALIZED (
    SELECT e.tenant, e.id, e.seq, e.created_at < (SELECT g.cutoff FROM given g) AS old
    FROM postlane.events e
    WHERE e.seq > @after::bigint
    ORDER BY e.seq LIMIT @max::integer
),
span AS MATERIALIZED (
    SELECT b.tenant, min(b.seq) AS first, max(b.seq) AS last FROM batch b WHERE b.old GROUP BY b.tenant
),
needed AS MATERIALIZED (
    SELECT n.seq
    FROM span p
    JOIN postlane.subscriptions s ON s.tenant = p.tenant AND s.deleted_at IS NULL
    CROSS JOIN LATERAL (
        SELECT d.seq FROM postlane.deliveries d WHERE d.subscription_id = s.id AND d.seq >= p.first AND d.seq <= p.last
        UNION ALL
        SELECT x.seq FROM postlane.settled x WHERE x.subscription_id = s.id AND x.state = 'dead' AND x.seq >= p.first AND x.seq <= p.last
    ) n
    UNION ALL
    SELECT r.event_seq
    FROM span p
    CROSS JOIN LATERAL (
        SELECT y.event_seq, y.subscription_id, y.seq FROM postlane.replayed y WHERE y.event_seq >= p.first AND y.event_seq <= p.last AND y.tenant = p.tenant
        OFFSET 0
    ) r
    WHERE (SELECT d.seq FROM postlane.deliveries d WHERE d.subscription_id = r.subscription_id AND d.seq = r.seq LIMIT 1) IS NOT NULL
       OR (SELECT x.seq FROM postlane.settled x WHERE x.subscription_id = r.subscription_id AND x.seq = r.seq AND x.state = 'dead' LIMIT 1) IS NOT NULL
),
free AS MATERIALIZED (
    SELECT e.tenant, e.id, e.seq
    FROM postlane.events e
    WHERE e.seq = ANY (array(SELECT b.seq FROM batch b WHERE b.old EXCEPT SELECT n.seq FROM needed n))
    ORDER BY e.seq
    FOR UPDATE OF e SKIP LOCKED
),
gone AS (
    DELETE FROM postlane.events e
    USING free f
    WHERE e.tenant = f.tenant AND e.id = f.id AND e.seq = f.seq
    RETURNING e.seq
)
SELECT (SELECT count(*) FROM gone)::bigint AS events,
       (SELECT count(*) FROM batch)::bigint AS met,
       (SELECT count(*) FROM batch b WHERE b.old)::bigint AS old,
       coalesce((SELECT max(b.seq) FROM batch b), 0)::bigint AS last;

-- name: PruneSecrets :one
--
-- Removes signing secrets whose overlap ended a day ago, up to max, and says how many.
-- The day is for requests that are under way, and for clocks.
WITH over AS MATERIALIZED (
    SELECT k.subscription_id, k.number FROM postlane.subscription_secrets k
    WHERE k.expires_at < now() - interval '24 hours' -- a day may have 23
    LIMIT @max::integer
    FOR UPDATE OF k SKIP LOCKED
),
gone AS (
    DELETE FROM postlane.subscription_secrets k USING over o
    WHERE k.subscription_id = o.subscription_id AND k.number = o.number
    RETURNING 1
)
SELECT count(*) FROM gone;

-- name: PruneAudit :one
--
-- Removes those of the next max entries of the audit log that are older than keep_ms.
WITH batch AS MATERIALIZED (
    SELECT a.id, a.at < now() - interval '1 millisecond' * @keep_ms::bigint AS old
    FROM postlane.audit a WHERE a.id > @after::bigint ORDER BY a.id LIMIT @max::integer
),
gone AS (
    DELETE FROM postlane.audit a WHERE a.id = ANY (array(SELECT b.id FROM batch b WHERE b.old))
    RETURNING 1
)
SELECT (SELECT count(*) FROM gone)::bigint AS entries,
       coalesce((SELECT max(b.id) FROM batch b), 0)::bigint AS last;

-- name: PruneSessions :one
--
-- Removes sessions of the console whose time is over, up to max, and says how many.
WITH gone AS (
    DELETE FROM postlane.console_sessions s
    WHERE s.hash = ANY (array(SELECT o.hash FROM postlane.console_sessions o WHERE o.expires_at <= now() ORDER BY o.expires_at LIMIT @max::integer))
    RETURNING 1
)
SELECT count(*) FROM gone;
