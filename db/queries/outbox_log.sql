-- name: OutboxBacklog :one
--
-- Counts what is not published, up to max of each, and says how long what has waited
-- longest has. With max at 100,000 it takes some 10 ms, however large the backlog.
SELECT (SELECT count(*) FROM (SELECT 1 FROM postlane.outbox_pending LIMIT @max::integer) p) AS pending,
       (SELECT count(*) FROM (SELECT 1 FROM postlane.outbox_scheduled LIMIT @max::integer) s) AS scheduled,
       (SELECT count(*) FROM (SELECT 1 FROM postlane.outbox_parked LIMIT @max::integer) k) AS parked,
       (SELECT count(*) FROM (SELECT 1 FROM postlane.outbox_holds LIMIT @max::integer) h) AS waiting,
       coalesce((SELECT greatest(extract(epoch FROM coalesce(sqlc.narg('now')::timestamptz, now()) - o.since) * 1000, 0)
                 FROM postlane.outbox_pending o ORDER BY o.since LIMIT 1), 0)::bigint AS oldest_ms;

-- name: MessageList :many
--
-- Up to max messages in one state, without their payloads, from the one after
-- (after_at, after_seq). `rank` with seq is their order: pending messages come in that
-- in which they began to wait, or, where a queue is named, in that of the queue;
-- scheduled ones as they are due; the others as they were staged. `at` is the time
-- that the state is about: of the next attempt, due, parked, published.
--
-- Each of the five lists walks an index from where it goes on, and the other four are
-- not begun. With a queue named, lists but the pending ones step over what they meet of
-- other queues.
SELECT s.seq, s.id, s.queue, m.topic, m.tenant, m.payload_size, m.max_attempts, s.attempts, coalesce(s.error, '')::text AS error,
       m.staged_at, m.enqueued_by::text AS enqueued_by, s.rank::timestamptz AS rank,
       coalesce(s.at, (SELECT h.until FROM postlane.outbox_holds h
                       WHERE @state::text = 'pending' AND h.queue = s.queue AND h.seq = s.seq LIMIT 1), 'epoch')::timestamptz AS at,
       coalesce(s.claimant, (SELECT l.claimant FROM postlane.outbox_leases l
                             WHERE @state::text = 'pending' AND l.queue = s.queue AND s.seq = ANY (l.seqs) LIMIT 1), '')::text AS claimant
FROM (
    (SELECT p.since AS rank, p.seq, p.id, p.queue, p.attempts, p.last_error AS error, NULL::timestamptz AS at, NULL::text AS claimant
     FROM postlane.outbox_pending p
     WHERE @state::text = 'pending' AND @queue::text = '' AND (p.since, p.seq) > (@after_at::timestamptz, @after_seq::bigint)
     ORDER BY p.since, p.seq LIMIT @max::integer)
    UNION ALL
    (SELECT 'epoch', p.seq, p.id, p.queue, p.attempts, p.last_error, NULL, NULL
     FROM postlane.outbox_pending p
     WHERE @state::text = 'pending' AND @queue::text <> '' AND p.queue = @queue::text AND p.seq > @after_seq::bigint
     ORDER BY p.seq LIMIT @max::integer)
    UNION ALL
    (SELECT p.due_at, p.seq, p.id, p.queue, 0, NULL, p.due_at, NULL
     FROM postlane.outbox_scheduled p
     WHERE @state::text = 'scheduled' AND @queue::text IN ('', p.queue) AND (p.due_at, p.seq) > (@after_at::timestamptz, @after_seq::bigint)
     ORDER BY p.due_at, p.seq LIMIT @max::integer)
    UNION ALL
    (SELECT 'epoch', p.seq, p.id, p.queue, p.attempts, p.error, p.parked_at, NULL
     FROM postlane.outbox_parked p
     WHERE @state::text = 'parked' AND @queue::text IN ('', p.queue) AND p.seq > @after_seq::bigint
     ORDER BY p.seq LIMIT @max::integer)
    UNION ALL
    (SELECT 'epoch', p.seq, p.id, p.queue, p.attempts, NULL, p.published_at, p.claimant
     FROM postlane.outbox_published p
     WHERE @state::text = 'published' AND @queue::text IN ('', p.queue) AND p.seq > @after_seq::bigint
     ORDER BY p.seq LIMIT @max::integer)
) s
CROSS JOIN LATERAL (
    SELECT b.topic, b.tenant, octet_length(b.payload)::integer AS payload_size, b.max_attempts, b.staged_at, coalesce(b.enqueued_by, '') AS enqueued_by
    FROM postlane.outbox_messages b WHERE b.id = s.id LIMIT 1
) m
ORDER BY s.rank, s.seq;

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
