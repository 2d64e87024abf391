-- name: MessageStage :many
--
-- Stores messages in the caller's transaction, in one round trip however many
-- they are, and in the order of the arrays. One whose id, or whose idempotency key
-- for its tenant, is there already is stepped over and is not in the answer.
-- run_ats_us are microseconds since 1970, 0 for at once.
--
-- Locks: none but the unique indexes on id and idempotency key, and those only
-- against another open transaction that stages the same. It reads no row that a
-- relay writes. wake adds a notification, which wakes relays when this commits.
WITH input AS MATERIALIZED (
    SELECT generate_subscripts(@ids::text[], 1) AS ordinality,
           unnest(@ids::text[]) AS id, unnest(@queues::text[]) AS queue, unnest(@topics::text[]) AS topic,
           unnest(@tenants::text[]) AS tenant, unnest(@idempotency_keys::text[]) AS idempotency_key,
           unnest(@traceparents::text[]) AS traceparent, unnest(@enqueued_bys::text[]) AS enqueued_by,
           unnest(@headers::text[]) AS headers, unnest(@payloads::bytea[]) AS payload,
           unnest(@max_attempts::integer[]) AS max_attempts, unnest(@run_ats_us::bigint[]) AS run_at_us
),
clock AS MATERIALIZED (
    SELECT coalesce(sqlc.narg('now')::timestamptz, now()) AS at
),
stored AS (
    INSERT INTO postlane.outbox_messages (seq, staged_at, run_at, max_attempts, id, queue, topic, tenant, idempotency_key,
                                          traceparent, enqueued_by, headers, payload)
    SELECT nextval('postlane.outbox_seq'), c.at, 'epoch'::timestamptz + nullif(i.run_at_us, 0) * interval '1 microsecond',
           i.max_attempts, i.id, i.queue, i.topic, i.tenant, nullif(i.idempotency_key, ''),
           nullif(i.traceparent, ''), nullif(i.enqueued_by, ''), nullif(i.headers, '')::json, i.payload
    FROM (SELECT * FROM input q ORDER BY q.ordinality) i CROSS JOIN clock c
    ON CONFLICT DO NOTHING
    RETURNING seq, id, queue, staged_at, run_at, octet_length(payload) AS size
),
pending AS (
    INSERT INTO postlane.outbox_pending (seq, since, size, queue, id)
    SELECT s.seq, s.staged_at, s.size, s.queue, s.id FROM stored s WHERE s.run_at IS NULL OR s.run_at <= s.staged_at
),
scheduled AS (
    INSERT INTO postlane.outbox_scheduled (due_at, seq, size, queue, id)
    SELECT s.run_at, s.seq, s.size, s.queue, s.id FROM stored s WHERE s.run_at > s.staged_at
)
SELECT s.id, s.seq,
       coalesce((SELECT pg_notify('postlane', 'message')::text WHERE @wake::boolean), '')::text AS woken
FROM stored s;

-- name: MessageClaim :many
--
-- Takes up to max messages for claimant: of each queue that it takes from, the
-- first ones in a row, and the queue is its own until they are settled.
--
-- Promises. What is claimed of a queue starts with its first message, and nobody
-- else holds any of that queue. A queue whose first row somebody has locked is
-- stepped over whole; never is a message taken before one that stands before it.
-- Never more than max, and no more than max_bytes of payload unless one message
-- alone has more.
--
-- How it reads:
--   walk      leaps from queue to queue along the ready index, from the one after
--             after, and goes round once. A queue costs it one probe however deep it
--             is. It ends at max queues that are free, or after window_size queues.
--   picked    locks the first message of each free queue, and takes what follows it,
--             up to the queue's share.
--   taken     writes the leases, one a queue. The primary key decides between two
--             claims that could not see each other: the second takes nothing. In
--             the order of the queues, so that two claims cannot wait for each other
--             in a circle.
--
-- Every row of the answer tells how the walk went: to where (walked_to), whether
-- that was all round (complete), and which queues it met that wait for their next
-- attempt (held: MessageHide takes them out of the way). A row with seq 0 tells only
-- that.
--
-- The ready index is on an expression, queue || '', which the primary key does not
-- have. Of two indexes in the same order the planner takes either, and keeps it: by the
-- primary key the walk would step over all that waits out of its way.
--
-- A scalar sub-select with LIMIT 1 stays an index probe whatever the planner
-- believes of tables it has never analyzed; EXISTS may become a hash of a whole
-- table.
WITH RECURSIVE start AS MATERIALIZED (
    SELECT @after::text AS queue, @max::integer AS most
),
walk (began, round, queue, free, held, steps, hits) AS (
    SELECT s.queue COLLATE "C" AS began, 0 AS round, s.queue COLLATE "C" AS queue, false AS free, false AS held, 0 AS steps, 0 AS hits
    FROM start s
    UNION ALL
    SELECT w.began, step.round, step.queue, step.free, step.held, w.steps + 1, w.hits + step.free::integer
    FROM walk w
    CROSS JOIN LATERAL (
        SELECT (SELECT p.queue || '' FROM postlane.outbox_pending p
                WHERE p.ready AND p.queue || '' > w.queue
                ORDER BY p.queue || '', p.seq LIMIT 1) AS queue
        OFFSET 0
    ) next
    CROSS JOIN LATERAL (
        SELECT (SELECT h.until FROM postlane.outbox_holds h WHERE h.queue = next.queue LIMIT 1) IS NOT NULL AS held,
               (SELECT l.fence FROM postlane.outbox_leases l WHERE l.queue = next.queue LIMIT 1) IS NOT NULL AS leased
        OFFSET 0
    ) is_
    CROSS JOIN LATERAL (
        SELECT w.round + (next.queue IS NULL)::integer AS round,
               coalesce(next.queue, '') AS queue,
               next.queue IS NOT NULL AND NOT is_.held AND NOT is_.leased AS free,
               next.queue IS NOT NULL AND is_.held AND NOT is_.leased AS held
        OFFSET 0
    ) step
    WHERE w.hits < @max::integer AND w.steps < @window_size::integer
      AND (w.round = 0 OR (w.round = 1 AND w.queue < w.began))
      -- Going round ends where it began.
      AND (step.round = 0 OR (step.round = 1 AND step.queue <= w.began))
),
walked AS MATERIALIZED (
    SELECT w.round, w.queue, w.free, w.held, w.steps, w.hits FROM walk w
),
ending AS MATERIALIZED (
    SELECT w.queue AS walked_to,
           w.hits < @max::integer AND w.steps < @window_size::integer AS complete,
           -- What one queue gives: a fair share, but not so little that its lease
           -- costs more than its messages.
           greatest((s.most - 1) / greatest(w.hits, 1) + 1, (s.most - 1) / 10 + 1) AS share
    FROM walked w CROSS JOIN start s ORDER BY w.steps DESC LIMIT 1
),
picked AS MATERIALIZED (
    SELECT q.steps, q.queue, q.seq, q.id, q.attempts
    FROM (
        SELECT w.steps, r.queue, r.seq, r.id, r.attempts, r.size,
               sum(r.size::bigint) OVER (ORDER BY w.steps, r.seq ROWS UNBOUNDED PRECEDING) AS bytes
        FROM walked w
        CROSS JOIN LATERAL (
            SELECT f.seq FROM postlane.outbox_pending f
            WHERE f.queue = w.queue
              AND f.seq = (SELECT e.seq FROM postlane.outbox_pending e WHERE e.queue = w.queue ORDER BY e.seq LIMIT 1)
            FOR UPDATE SKIP LOCKED
        ) first
        CROSS JOIN LATERAL (
            SELECT p.queue, p.seq, p.id, p.attempts, p.size FROM postlane.outbox_pending p
            WHERE p.queue = w.queue AND p.seq >= first.seq
            ORDER BY p.seq LIMIT (SELECT e.share FROM ending e)
        ) r
        WHERE w.free
        ORDER BY w.steps, r.seq
        LIMIT @max::integer
    ) q
    WHERE q.bytes <= greatest(@max_bytes::bigint, q.size)
),
taken AS (
    INSERT INTO postlane.outbox_leases (fence, claimed_at, lease_until, queue, claimant, seqs)
    SELECT c.fence, c.began, c.began + c.lease_ms * interval '1 millisecond', g.queue, c.claimant, g.seqs
    FROM (SELECT p.queue, array_agg(p.seq ORDER BY p.seq) AS seqs FROM picked p GROUP BY p.queue) g
    CROSS JOIN (SELECT nextval('postlane.outbox_fence_seq') AS fence,
                       coalesce(sqlc.narg('now')::timestamptz, now()) AS began,
                       @lease_ms::bigint AS lease_ms,
                       @claimant::text AS claimant OFFSET 0) c
    ORDER BY g.queue
    ON CONFLICT (queue) DO NOTHING
    RETURNING queue, fence, claimed_at
)
SELECT e.walked_to::text AS walked_to, e.complete::boolean AS complete,
       coalesce((SELECT array_agg(w.queue) FROM walked w WHERE w.held), '{}')::text[] AS held,
       coalesce(c.seq, 0)::bigint AS seq, coalesce(c.fence, 0)::bigint AS fence, coalesce(c.claimed_at, 'epoch')::timestamptz AS claimed_at,
       coalesce(c.attempts, 0)::integer AS attempts, coalesce(c.id, '')::text AS id, coalesce(c.queue, '')::text AS queue,
       coalesce(c.topic, '')::text AS topic, coalesce(c.tenant, '')::text AS tenant,
       coalesce(c.idempotency_key, '')::text AS idempotency_key, coalesce(c.traceparent, '')::text AS traceparent,
       coalesce(c.enqueued_by, '')::text AS enqueued_by, coalesce(c.headers::text, '')::text AS headers,
       c.payload, coalesce(c.max_attempts, 0)::integer AS max_attempts, coalesce(c.staged_at, 'epoch')::timestamptz AS staged_at
FROM ending e
LEFT JOIN (
    SELECT t.fence, t.claimed_at, p.steps, p.seq, p.attempts, p.id, p.queue, m.topic, m.tenant, m.idempotency_key, m.traceparent,
           m.enqueued_by, m.headers, m.payload, m.max_attempts, m.staged_at
    FROM taken t
    JOIN picked p ON p.queue = t.queue
    CROSS JOIN LATERAL (
        SELECT b.topic, b.tenant, b.idempotency_key, b.traceparent, b.enqueued_by, b.headers, b.payload, b.max_attempts, b.staged_at
        FROM postlane.outbox_messages b WHERE b.id = p.id LIMIT 1
    ) m
) c ON true
ORDER BY c.steps, c.seq;

-- name: MessagePublish :many
--
-- Settles messages that were published: out of the backlog, into
-- outbox_published. Answers with those that the caller still held; for the others
-- nothing changes. QueueSettle follows, in the same transaction.
--
-- Locks the leases (so a reclaim steps over them) and then the messages.
WITH u AS MATERIALIZED (
    SELECT unnest(@queues::text[]) AS queue, unnest(@seqs::bigint[]) AS seq, unnest(@fences::bigint[]) AS fence
),
held AS MATERIALIZED (
    SELECT d.queue, d.fence, l.seqs, l.claimant, l.claimed_at
    FROM (SELECT DISTINCT q.queue, q.fence FROM u q ORDER BY q.queue) d
    CROSS JOIN LATERAL (
        SELECT e.seqs, e.claimant, e.claimed_at FROM postlane.outbox_leases e
        WHERE e.queue = d.queue AND e.fence = d.fence
        LIMIT 1 FOR UPDATE
    ) l
),
mine AS MATERIALIZED (
    SELECT DISTINCT i.queue, i.seq, i.fence, h.claimant, h.claimed_at
    FROM u i JOIN held h ON h.queue = i.queue AND h.fence = i.fence AND i.seq = ANY (h.seqs)
),
gone AS (
    DELETE FROM postlane.outbox_pending p
    USING mine m
    WHERE p.queue = m.queue AND p.seq = m.seq
    RETURNING p.queue, p.seq, p.id, p.attempts
),
logged AS (
    INSERT INTO postlane.outbox_published (seq, claimed_at, published_at, attempts, queue, id, claimant)
    SELECT g.seq, m.claimed_at, coalesce(sqlc.narg('now')::timestamptz, now()), g.attempts + 1, g.queue, g.id, m.claimant
    FROM gone g JOIN mine m ON m.queue = g.queue AND m.seq = g.seq
)
SELECT m.queue, m.seq, m.fence
FROM mine m JOIN gone g ON g.queue = m.queue AND g.seq = m.seq;

-- name: MessageFail :many
--
-- Settles failed attempts. The message stays first in its queue, which waits
-- delay_ms for the next attempt; or it is parked, where parks says so, and its queue
-- goes on without it. Answers with those that the caller still held.
-- QueueSettle follows, in the same transaction.
WITH u AS MATERIALIZED (
    SELECT unnest(@queues::text[]) AS queue, unnest(@seqs::bigint[]) AS seq, unnest(@fences::bigint[]) AS fence,
           unnest(@delays_ms::bigint[]) AS delay_ms, unnest(@parks::boolean[]) AS park, unnest(@errors::text[]) AS error
),
clock AS MATERIALIZED (
    SELECT coalesce(sqlc.narg('now')::timestamptz, now()) AS at
),
mine AS MATERIALIZED (
    SELECT i.queue, i.seq, i.fence, i.delay_ms, i.park, i.error
    FROM u i
    CROSS JOIN LATERAL (
        SELECT e.seqs FROM postlane.outbox_leases e
        WHERE e.queue = i.queue AND e.fence = i.fence AND i.seq = ANY (e.seqs)
        LIMIT 1 FOR UPDATE
    ) l
),
kept AS (
    UPDATE postlane.outbox_pending p
    SET attempts = p.attempts + 1, ready = false, last_error = m.error
    FROM mine m
    WHERE p.queue = m.queue AND p.seq = m.seq AND NOT m.park
    RETURNING p.queue, p.seq
),
held AS (
    INSERT INTO postlane.outbox_holds (queue, seq, since, until)
    SELECT k.queue, k.seq, c.at, c.at + m.delay_ms * interval '1 millisecond'
    FROM kept k JOIN mine m ON m.queue = k.queue AND m.seq = k.seq CROSS JOIN clock c
    ON CONFLICT (queue) DO UPDATE SET seq = excluded.seq, since = excluded.since, until = excluded.until
),
gone AS (
    DELETE FROM postlane.outbox_pending p
    USING mine m
    WHERE p.queue = m.queue AND p.seq = m.seq AND m.park
    RETURNING p.queue, p.seq, p.id, p.size, p.attempts
),
parked AS (
    INSERT INTO postlane.outbox_parked (seq, parked_at, attempts, size, queue, id, error)
    SELECT g.seq, c.at, g.attempts + 1, g.size, g.queue, g.id, m.error
    FROM gone g JOIN mine m ON m.queue = g.queue AND m.seq = g.seq CROSS JOIN clock c
)
SELECT m.queue, m.seq, m.fence FROM mine m;

-- name: QueueSettle :many
--
-- Ends what a claim holds of messages, named by queue, seq and fence, and the lease
-- with the last of them. What is then first in a queue is made visible, unless the
-- queue waits for its next attempt. Answers with those that were the caller's.
--
-- By itself it is a release: nothing is charged, and the messages may be claimed
-- again at once. After MessagePublish and MessageFail it is a statement of its own:
-- a claim waits for a lease that is being deleted, and may hold a row that settling
-- needs; and the look for what is first needs a newer snapshot. It begins where the
-- lease does, since what was published before may still be in the way of whoever
-- looks there; what joined the queue meanwhile, in front of that, came visible.
WITH u AS MATERIALIZED (
    SELECT unnest(@queues::text[]) AS queue, unnest(@seqs::bigint[]) AS seq, unnest(@fences::bigint[]) AS fence
),
held AS MATERIALIZED (
    SELECT d.queue, d.fence, l.seqs,
           (SELECT array_agg(x.seq ORDER BY x.seq) FROM unnest(l.seqs) AS x (seq) WHERE x.seq <> ALL (d.seqs)) AS rest
    FROM (SELECT q.queue, q.fence, array_agg(q.seq) AS seqs FROM u q GROUP BY q.queue, q.fence ORDER BY q.queue) d
    CROSS JOIN LATERAL (
        SELECT e.seqs FROM postlane.outbox_leases e
        WHERE e.queue = d.queue AND e.fence = d.fence
        LIMIT 1 FOR UPDATE
    ) l
),
ended AS (
    DELETE FROM postlane.outbox_leases l
    USING held h
    WHERE l.queue = h.queue AND l.fence = h.fence AND h.rest IS NULL
),
trimmed AS (
    UPDATE postlane.outbox_leases l SET seqs = h.rest
    FROM held h
    WHERE l.queue = h.queue AND l.fence = h.fence AND h.rest IS NOT NULL
),
shown AS (
    UPDATE postlane.outbox_pending p SET ready = true
    FROM (
        SELECT h.queue,
               (SELECT e.seq FROM postlane.outbox_pending e WHERE e.queue = h.queue AND e.seq >= h.seqs[1] ORDER BY e.seq LIMIT 1) AS seq
        FROM held h
        WHERE (SELECT w.until FROM postlane.outbox_holds w WHERE w.queue = h.queue LIMIT 1) IS NULL
        OFFSET 0
    ) f
    WHERE p.queue = f.queue AND p.seq = f.seq AND NOT p.ready
)
SELECT i.queue, i.seq, i.fence
FROM u i JOIN held h ON h.queue = i.queue AND h.fence = i.fence AND i.seq = ANY (h.seqs);

-- name: QueueRenew :many
--
-- Moves the end of leases to lease_ms from now and answers with those that the
-- caller still holds, and the messages that each is for. An expired lease that
-- nobody has reclaimed yet is still held.
WITH u AS MATERIALIZED (
    SELECT unnest(@queues::text[]) AS queue, unnest(@fences::bigint[]) AS fence
),
renewed AS (
    UPDATE postlane.outbox_leases l
    SET lease_until = coalesce(sqlc.narg('now')::timestamptz, now()) + sqlc.arg('lease_ms')::bigint * interval '1 millisecond'
    FROM u
    WHERE l.queue = u.queue AND l.fence = u.fence
    RETURNING l.queue, l.fence, l.seqs
)
SELECT r.queue, r.fence, r.seqs FROM renewed r;

-- name: QueueReclaim :many
--
-- Takes back up to max queues whose lease ran out. The first message of each was
-- being published, or next to be, and is charged an attempt; the others are not.
-- Locks the leases first, so a claimant that settles meanwhile finds its lease
-- gone, and one that is settling now is stepped over.
WITH expired AS MATERIALIZED (
    SELECT l.queue, l.fence, l.seqs[1] AS seq, l.claimant
    FROM postlane.outbox_leases l
    WHERE l.lease_until <= coalesce(sqlc.narg('now')::timestamptz, now())
    ORDER BY l.queue
    LIMIT @max::integer
    FOR UPDATE SKIP LOCKED
),
charged AS (
    UPDATE postlane.outbox_pending p
    SET attempts = p.attempts + 1, ready = true, last_error = 'stalled: the lease of ' || x.claimant || ' ran out'
    FROM expired x
    WHERE p.queue = x.queue AND p.seq = x.seq
),
ended AS (
    DELETE FROM postlane.outbox_leases l
    USING expired x
    WHERE l.queue = x.queue AND l.fence = x.fence
)
SELECT x.queue, x.fence, x.claimant FROM expired x;

-- name: QueueResume :many
--
-- Lets queues go on, up to max, whose wait for the next attempt is over: what is
-- first in them becomes visible. QueueDue has locked them, in the same transaction
-- and as a statement of its own: MessageHide marks rows under that lock, and this
-- statement's newer snapshot sees the marks.
WITH due AS MATERIALIZED (
    SELECT unnest(@queues::text[]) AS queue
),
shown AS (
    UPDATE postlane.outbox_pending p SET ready = true
    FROM (
        SELECT d.queue, (SELECT e.seq FROM postlane.outbox_pending e WHERE e.queue = d.queue ORDER BY e.seq LIMIT 1) AS seq
        FROM due d OFFSET 0
    ) f
    WHERE p.queue = f.queue AND p.seq = f.seq AND NOT p.ready
),
ended AS (
    DELETE FROM postlane.outbox_holds h USING due d WHERE h.queue = d.queue
    RETURNING h.queue
)
SELECT e.queue FROM ended e;

-- name: QueueDue :many
--
-- Locks up to max queues whose wait is over, for QueueResume.
SELECT h.queue FROM postlane.outbox_holds h
WHERE h.until <= coalesce(sqlc.narg('now')::timestamptz, now())
ORDER BY h.until
LIMIT @max::integer
FOR UPDATE SKIP LOCKED;

-- name: QueueDueCount :one
--
-- 1 if a queue's wait is over, so that nobody locks in vain.
SELECT count(*) FROM (
    SELECT 1 FROM postlane.outbox_holds h
    WHERE h.until <= coalesce(sqlc.narg('now')::timestamptz, now()) LIMIT 1
) due;

-- name: MessageHide :one
--
-- Takes messages of queues that wait for their next attempt out of the ready
-- index, up to max, and says how many. Each is hidden at most once a wait. The lock
-- on the hold makes the end of the wait come after this or before it, never between.
WITH waiting AS MATERIALIZED (
    SELECT h.queue FROM postlane.outbox_holds h
    WHERE h.queue = ANY (@queues::text[])
    ORDER BY h.queue
    FOR SHARE SKIP LOCKED
),
visible AS MATERIALIZED (
    SELECT v.queue, v.seq
    FROM waiting w
    CROSS JOIN LATERAL (
        SELECT p.queue, p.seq FROM postlane.outbox_pending p
        WHERE p.queue || '' = w.queue AND p.ready
        ORDER BY p.seq LIMIT @max::integer
        FOR UPDATE SKIP LOCKED
    ) v
    LIMIT @max::integer
),
hidden AS (
    UPDATE postlane.outbox_pending p SET ready = false
    FROM visible v
    WHERE p.queue = v.queue AND p.seq = v.seq
    RETURNING 1
)
SELECT count(*) FROM hidden;

-- name: MessageDue :one
--
-- Moves up to max scheduled messages whose time has come into their queues, and
-- says how many.
WITH due AS MATERIALIZED (
    SELECT s.due_at, s.seq FROM postlane.outbox_scheduled s
    WHERE s.due_at <= coalesce(sqlc.narg('now')::timestamptz, now())
    ORDER BY s.due_at, s.seq
    LIMIT @max::integer
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM postlane.outbox_scheduled s
    USING due d
    WHERE s.due_at = d.due_at AND s.seq = d.seq
    RETURNING s.due_at, s.seq, s.size, s.queue, s.id
),
joined AS (
    INSERT INTO postlane.outbox_pending (seq, since, size, queue, id)
    SELECT g.seq, g.due_at, g.size, g.queue, g.id FROM gone g
    RETURNING 1
)
SELECT count(*) FROM joined;
