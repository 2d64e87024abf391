-- Replays: events of a time range become deliveries of a subscription once more.

-- name: ReplayPosition :one
--
-- From which seq on events were written at a time or later; one more than the newest if
-- none was, or without a time. A search by halves, some dozens of index probes. It goes
-- by the times being in the order of the seqs: see ReplayBegin.
--
-- So that few of them that are not do not lead it astray, each look is at up to nearby
-- events: of them the youngest counts, which errs towards an earlier position, or the
-- oldest (late), which errs towards a later one.
WITH RECURSIVE given AS MATERIALIZED (
    SELECT coalesce(sqlc.narg('at')::timestamptz, 'infinity') AS at, @late::boolean AS late, @nearby::integer AS nearby
),
search (lo, hi) AS (
    SELECT 0::bigint, coalesce((SELECT e.seq FROM postlane.events e ORDER BY e.seq DESC LIMIT 1), 0) + 1
    UNION ALL
    SELECT CASE WHEN p.before THEN p.seq + 1 ELSE s.lo END,
           CASE WHEN p.before THEN s.hi ELSE (s.lo + s.hi) / 2 END
    FROM search s
    CROSS JOIN LATERAL (
        SELECT m.seq, coalesce(CASE WHEN (SELECT g.late FROM given g) THEN m.oldest ELSE m.youngest END < (SELECT g.at FROM given g), false) AS before
        FROM (SELECT min(n.seq) AS seq, min(n.created_at) AS oldest, max(n.created_at) AS youngest
              FROM (SELECT e.seq, e.created_at FROM postlane.events e
                    WHERE e.seq >= (s.lo + s.hi) / 2 AND e.seq < s.hi
                    ORDER BY e.seq LIMIT (SELECT g.nearby FROM given g)) n) m
        OFFSET 0
    ) p
    WHERE s.lo < s.hi
)
SELECT min(s.hi)::bigint FROM search s;

-- name: ReplayBegin :exec
--
-- Remembers a replay, unless its id is known. What is to be looked at is settled here, so
-- that a replay ends: the range, an hour wider on both sides. Times are in the order of
-- the seqs to within the moment between the two, but where the server's clock was put
-- right. Written while that was wrong by more than the hour, an event may not be found,
-- nor what stands among very many of those.
INSERT INTO postlane.replays (subscription_id, tenant, id, since, until, event_types, asset, requested_by, done_seq, last_seq)
VALUES (@subscription_id, @tenant, @id, @since, coalesce(sqlc.narg('until')::timestamptz, now()), @event_types, sqlc.narg('asset'), @requested_by, @done_seq, @last_seq)
ON CONFLICT DO NOTHING;

-- name: ReplayLock :one
--
-- A replay as it stands, locked until the transaction ends: of several who go on with it
-- at once each does a batch of its own.
SELECT * FROM postlane.replays r
WHERE r.subscription_id = @subscription_id AND r.id = @id
FOR NO KEY UPDATE;

-- name: ReplayEventsKept :exec
--
-- Comes before ReplayBatch in its transaction, as a statement of its own, and makes it
-- take turns with retention (ReplayEventsGoing): of an event either sees that the other
-- has it.
SELECT pg_advisory_xact_lock_shared(1886351212, 2);

-- name: ReplayEventsGoing :exec
--
-- Comes before PruneEvents, in the same way.
SELECT pg_advisory_xact_lock(1886351212, 2);

-- name: ReplayBatch :one
--
-- Looks at the next max events and makes those of the range deliveries, in the order in
-- which they were written, behind all that waits in their streams. Which were met, and
-- how far it got, is written with them, so no batch is done twice. With dry_run it only
-- counts.
--
-- Of each stream the first delivery of the batch is ready, as after an enqueue.
--
-- Locks: rows of its own only. Reads the events of all tenants in the range by their seq,
-- and payloads only where the subscription has conditions.
WITH given AS MATERIALIZED (
    SELECT @subscription_id::bigint AS subscription_id, @tenant::text AS tenant, @id::text AS id, @dry_run::boolean AS dry_run,
           @since::timestamptz AS since, sqlc.narg('until')::timestamptz AS until, @event_types::text[] AS event_types, sqlc.narg('asset')::text AS asset,
           @last::bigint AS last
),
met AS MATERIALIZED (
    SELECT e.seq, e.tenant, e.id, e.type, e.asset, e.created_at
    FROM postlane.events e
    WHERE e.seq > @after::bigint AND e.seq <= (SELECT g.last FROM given g)
    ORDER BY e.seq LIMIT @max::integer
),
-- Not subscription_patterns: a subscription of * and postlane.* has no row of the second.
wanted AS MATERIALIZED (
    SELECT unnest(s.event_types) AS pattern, postlane.conditions_path(s.conditions) AS conditions
    FROM postlane.subscriptions s JOIN given g ON s.id = g.subscription_id
    WHERE s.deleted_at IS NULL
),
reached AS MATERIALIZED (
    SELECT CASE WHEN count(*) < @max::integer THEN (SELECT g.last FROM given g) ELSE max(m.seq) END AS seq,
           count(*) < @max::integer AS finished
    FROM met m
),
chosen AS MATERIALIZED (
    SELECT m.seq, m.id, m.type, m.asset
    FROM met m CROSS JOIN given g
    WHERE m.tenant = g.tenant AND m.created_at >= g.since AND (g.until IS NULL OR m.created_at < g.until)
      AND (g.asset IS NULL OR coalesce(m.asset, '') = g.asset)
      AND (g.event_types = '{}' OR (SELECT p.pattern FROM unnest(g.event_types) p (pattern) WHERE postlane.matches(p.pattern, m.type) LIMIT 1) IS NOT NULL)
      AND (SELECT w.pattern FROM wanted w WHERE postlane.matches(w.pattern, m.type) LIMIT 1) IS NOT NULL
      AND ((SELECT w.conditions FROM wanted w LIMIT 1) IS NULL
           OR (SELECT jsonb_path_match(postlane.event_json(v.payload, v.content_type), (SELECT w.conditions FROM wanted w LIMIT 1), '{}', true)
               FROM postlane.events v WHERE v.tenant = m.tenant AND v.id = m.id LIMIT 1))
),
numbered AS MATERIALIZED (
    SELECT nextval('postlane.delivery_seq') AS seq, c.seq AS event_seq, c.id, c.type, c.asset
    FROM (SELECT q.seq, q.id, q.type, q.asset FROM chosen q ORDER BY q.seq) c CROSS JOIN given g
    WHERE NOT g.dry_run
),
added AS (
    INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, ready)
    SELECT g.subscription_id, n.seq, g.tenant, n.id, n.type, n.asset,
           CASE WHEN row_number() OVER (PARTITION BY n.asset ORDER BY n.seq) = 1 THEN n.seq END
    FROM numbered n CROSS JOIN given g
),
noted AS (
    INSERT INTO postlane.replayed (subscription_id, seq, event_seq, tenant, replay_id)
    SELECT g.subscription_id, n.seq, n.event_seq, g.tenant, g.id FROM numbered n CROSS JOIN given g
),
progress AS (
    UPDATE postlane.replays r
    SET done_seq = h.seq, deliveries = r.deliveries + (SELECT count(*) FROM chosen c),
        finished_at = CASE WHEN h.finished THEN now() END
    FROM reached h CROSS JOIN given g
    WHERE r.subscription_id = g.subscription_id AND r.id = g.id AND NOT g.dry_run
)
SELECT h.seq::bigint AS reached, h.finished::boolean AS finished, (SELECT count(*) FROM chosen c)::bigint AS events,
       ((SELECT count(*) FROM wanted) = 0)::boolean AS deleted
FROM reached h;

-- name: ReplayOldestEvent :one
--
-- When the oldest event was written that is still kept, of any tenant. No row: none is.
SELECT e.created_at FROM postlane.events e ORDER BY e.seq LIMIT 1;

-- name: ReplayOf :one
--
-- The replay that made a delivery. No row: none did.
SELECT r.replay_id, coalesce(p.requested_by, '')::text AS requested_by
FROM postlane.replayed r
LEFT JOIN postlane.replays p ON p.subscription_id = r.subscription_id AND p.id = r.replay_id
WHERE r.subscription_id = @subscription_id AND r.seq = @seq;

-- name: ReplayPrune :one
--
-- Forgets replays that were asked for more than keep_ms ago, up to max, and says how many.
-- Their events are of that time or older.
WITH over AS MATERIALIZED (
    SELECT r.subscription_id, r.id FROM postlane.replays r
    WHERE r.requested_at < coalesce(sqlc.narg('now')::timestamptz, now()) - interval '1 millisecond' * @keep_ms::bigint
    LIMIT @max::integer
),
gone AS (
    DELETE FROM postlane.replays r USING over o WHERE r.subscription_id = o.subscription_id AND r.id = o.id
    RETURNING 1
)
SELECT count(*) FROM gone;
