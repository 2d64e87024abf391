-- name: OutboxBacklog :one
--
-- Counts what is not published. Reads the whole backlog (some 50 ms a million
-- messages): for gauges and people, not for loops.
SELECT p.pending, p.oldest_ms,
       (SELECT count(*) FROM postlane.outbox_scheduled) AS scheduled,
       (SELECT count(*) FROM postlane.outbox_parked) AS parked,
       (SELECT count(*) FROM postlane.outbox_holds) AS waiting
FROM (
    SELECT count(*) AS pending,
           greatest(coalesce(extract(epoch FROM coalesce(sqlc.narg('now')::timestamptz, now()) - min(q.since)) * 1000, 0), 0)::bigint AS oldest_ms
    FROM postlane.outbox_pending q
) p;

-- name: MessageList :many
--
-- The messages in one state, without their payloads, in the order of seq from the
-- one after after, of one queue or, where queue is empty, of all. `at` is the time
-- that the state is about: of the next attempt, due, parked, published. Sorts the
-- whole backlog where no queue is named (half a second a million messages).
SELECT s.seq, s.id, s.queue, m.topic, m.tenant, octet_length(m.payload)::integer AS payload_size, m.max_attempts,
       s.attempts, coalesce(s.error, '')::text AS error, m.staged_at, coalesce(m.enqueued_by, '')::text AS enqueued_by,
       coalesce(s.at, h.until, 'epoch')::timestamptz AS at, coalesce(s.claimant, l.claimant, '')::text AS claimant
FROM (
    SELECT u.seq, u.id, u.queue, u.attempts, u.error, u.at, u.claimant
    FROM (
        SELECT p.seq, p.id, p.queue, p.attempts, p.last_error AS error, NULL::timestamptz AS at, NULL::text AS claimant
        FROM postlane.outbox_pending p
        WHERE @state::text = 'pending' AND p.seq > @after::bigint AND @queue::text IN ('', p.queue)
        UNION ALL
        SELECT p.seq, p.id, p.queue, 0, NULL, p.due_at, NULL
        FROM postlane.outbox_scheduled p
        WHERE @state::text = 'scheduled' AND p.seq > @after::bigint AND @queue::text IN ('', p.queue)
        UNION ALL
        SELECT p.seq, p.id, p.queue, p.attempts, p.error, p.parked_at, NULL
        FROM postlane.outbox_parked p
        WHERE @state::text = 'parked' AND p.seq > @after::bigint AND @queue::text IN ('', p.queue)
        UNION ALL
        SELECT p.seq, p.id, p.queue, p.attempts, NULL, p.published_at, p.claimant
        FROM postlane.outbox_published p
        WHERE @state::text = 'published' AND p.seq > @after::bigint AND @queue::text IN ('', p.queue)
    ) u
    ORDER BY u.seq
    LIMIT @max::integer
) s
JOIN postlane.outbox_messages m ON m.id = s.id
LEFT JOIN postlane.outbox_holds h ON @state::text = 'pending' AND h.queue = s.queue AND h.seq = s.seq
LEFT JOIN postlane.outbox_leases l ON @state::text = 'pending' AND l.queue = s.queue AND s.seq = ANY (l.seqs)
ORDER BY s.seq;

-- name: MessageRetry :many
--
-- Lets operators try messages again at once: a parked one returns to its place in
-- its queue with no attempts charged; of one whose queue waits for its next
-- attempt the wait is over. Answers with those that were one or the other.
WITH returned AS (
    DELETE FROM postlane.outbox_parked p
    WHERE p.id = ANY (@ids::text[])
    RETURNING p.seq, p.size, p.queue, p.id, p.error
),
joined AS (
    INSERT INTO postlane.outbox_pending (seq, since, size, queue, id, last_error)
    SELECT r.seq, coalesce(sqlc.narg('now')::timestamptz, now()), r.size, r.queue, r.id, r.error FROM returned r
),
hastened AS (
    UPDATE postlane.outbox_holds h
    SET until = coalesce(sqlc.narg('now')::timestamptz, now())
    FROM (
        SELECT m.queue, m.seq, m.id FROM postlane.outbox_messages m WHERE m.id = ANY (@ids::text[])
    ) w
    WHERE h.queue = w.queue AND h.seq = w.seq
    RETURNING w.id
)
SELECT x.id, (SELECT pg_notify('postlane', 'message')::text LIMIT 1) AS woken
FROM (SELECT r.id FROM returned r UNION ALL SELECT h.id FROM hastened h) x;

-- name: MessageParkedIDs :many
--
-- The parked messages, oldest first.
SELECT p.id FROM postlane.outbox_parked p
WHERE @queue::text IN ('', p.queue)
ORDER BY p.seq
LIMIT @max::integer;

-- name: MessagePrune :one
--
-- Forgets up to max messages that were published more than age_ms ago, and says how
-- many. Their ids and idempotency keys are free again.
WITH cut AS MATERIALIZED (
    SELECT coalesce(sqlc.narg('now')::timestamptz, now()) - sqlc.arg('age_ms')::bigint * interval '1 millisecond' AS at
),
old AS MATERIALIZED (
    SELECT p.seq, p.id FROM postlane.outbox_published p
    WHERE p.published_at < (SELECT c.at FROM cut c)
    ORDER BY p.published_at
    LIMIT @max::integer
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM postlane.outbox_published p USING old o WHERE p.seq = o.seq RETURNING p.id
),
forgotten AS (
    DELETE FROM postlane.outbox_messages m USING gone g WHERE m.id = g.id RETURNING 1
)
SELECT count(*) FROM forgotten;
