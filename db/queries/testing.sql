-- What package postlanetest asks: nothing else needs it.

-- name: EventListWritten :many
--
-- The events that the transaction at hand has written and that are still there, in order.
-- A row's xmin is that of the savepoint that wrote it, so it says nothing by itself; but a
-- row that is visible while its writer is in progress can only be one's own. Writers older
-- than this transaction are out of the question, and may be too old to ask about.
SELECT e.tenant, e.id, e.type, e.asset, e.content_type, e.payload
FROM postlane.events e
CROSS JOIN (SELECT pg_current_xact_id()::text::bigint AS number, age(pg_current_xact_id()::xid) AS age OFFSET 0) me
WHERE CASE WHEN age(e.xmin) <= me.age
           THEN pg_xact_status((me.number + me.age - age(e.xmin))::text::xid8) = 'in progress' ELSE false END
ORDER BY e.seq;

-- name: MessageListWritten :many
--
-- EventListWritten, for the outbox's messages.
SELECT m.id, m.topic, m.queue, m.payload, coalesce(m.headers::text, '')::text AS headers, m.idempotency_key, m.max_attempts, m.run_at, m.tenant,
       m.traceparent, m.enqueued_by, m.staged_at
FROM postlane.outbox_messages m
CROSS JOIN (SELECT pg_current_xact_id()::text::bigint AS number, age(pg_current_xact_id()::xid) AS age OFFSET 0) me
WHERE CASE WHEN age(m.xmin) <= me.age
           THEN pg_xact_status((me.number + me.age - age(m.xmin))::text::xid8) = 'in progress' ELSE false END
ORDER BY m.seq;
