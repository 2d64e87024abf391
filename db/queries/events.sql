-- name: EventEnqueue :many
--
-- Stores events and their deliveries, in the caller's transaction and in one
-- round trip however many they are. An event whose id its tenant has used before
-- is stepped over and is not in the answer.
--
-- Of each stream the first delivery is ready; those behind it in this call are
-- not: they become visible together with the one before them, whose settling
-- wakes them. (Behind one of another transaction they would need its lock; they are
-- ready, and the claim sorts it out.) An event that is to be delivered later is named in
-- delayed_tenants, delayed_ids and, in microseconds since 1970, due_us, which are
-- parallel: its deliveries are due then, as those that wait for their next attempt.
--
-- type_of and patterns are parallel: every pattern that matches each distinct
-- event type. A subscription has no two patterns that match the same type (see
-- subscription_patterns).
--
-- Of a subscription with conditions the payload has to meet them. documents is evaluated
-- only if an event meets such a one: what OFFSET 0 fences in is decided first, or another
-- tenant's conditions could have the payload read.
--
-- Locks: none but the unique index on (tenant, id), and that only against another
-- open transaction that enqueues the same ids. It reads no row that the dispatcher
-- writes. wake adds a notification, which wakes dispatchers when this commits.
WITH input AS MATERIALIZED (
    SELECT generate_subscripts(@ids::text[], 1) AS ordinality,
           unnest(@tenants::text[]) AS tenant, unnest(@ids::text[]) AS id, unnest(@types::text[]) AS type,
           unnest(@assets::text[]) AS asset, unnest(@content_types::text[]) AS content_type, unnest(@payloads::bytea[]) AS payload,
           unnest(@traceparents::text[]) AS traceparent
),
stored AS (
    INSERT INTO postlane.events (seq, tenant, id, type, asset, content_type, payload, traceparent)
    SELECT nextval('postlane.delivery_seq'), i.tenant, i.id, i.type, nullif(i.asset, ''), i.content_type, i.payload, nullif(i.traceparent, '')
    FROM (SELECT q.tenant, q.id, q.type, q.asset, q.content_type, q.payload, q.traceparent FROM input q ORDER BY q.ordinality) i
    ON CONFLICT (tenant, id) DO NOTHING
    RETURNING seq, tenant, id, type, asset
),
matching AS (
    SELECT unnest(@type_of::text[]) AS type, unnest(@patterns::text[]) AS pattern
),
documents AS MATERIALIZED (
    SELECT i.tenant, i.id, i.type, postlane.event_json(i.payload, i.content_type) AS document FROM input i
),
fanned AS (
    INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, ready, due_at)
    SELECT w.subscription_id, w.seq, w.tenant, w.id, w.type, w.asset,
           CASE WHEN l.due_us IS NULL AND row_number() OVER (PARTITION BY w.subscription_id, w.asset ORDER BY w.seq) = 1 THEN w.seq END,
           timestamptz 'epoch' + l.due_us * interval '1 microsecond'
    FROM (
        SELECT p.subscription_id, p.conditions, s.seq, s.tenant, s.id, s.type, s.asset
        FROM stored s
        JOIN matching m ON m.type = s.type
        JOIN postlane.subscription_patterns p ON p.tenant = s.tenant AND p.pattern = m.pattern
        OFFSET 0
    ) w
    LEFT JOIN (
        SELECT unnest(@delayed_tenants::text[]) AS tenant, unnest(@delayed_ids::text[]) AS id, unnest(@due_us::bigint[]) AS due_us
    ) l ON l.tenant = w.tenant AND l.id = w.id
    WHERE w.conditions IS NULL OR (w.tenant, w.id, w.subscription_id) IN (
        SELECT d.tenant, d.id, c.subscription_id
        FROM documents d
        JOIN matching k ON k.type = d.type
        JOIN postlane.subscription_patterns c ON c.tenant = d.tenant AND c.pattern = k.pattern
        WHERE c.conditions IS NOT NULL AND jsonb_path_match(d.document, c.conditions, '{}', true)
    )
    RETURNING 1
)
SELECT s.id, s.tenant, s.seq,
       (SELECT count(*) FROM fanned)::bigint AS fanned,
       coalesce((SELECT pg_notify('postlane', 'delivery')::text WHERE @wake::boolean), '')::text AS woken
FROM stored s;

-- name: EventGetMany :many
--
-- What is stored under the ids, with a digest in place of the payload.
SELECT e.tenant, e.id, e.seq, e.type, e.asset, e.content_type, sha256(e.payload)::bytea AS digest
FROM (SELECT unnest(@tenants::text[]) AS tenant, unnest(@ids::text[]) AS id) u
JOIN postlane.events e ON e.tenant = u.tenant AND e.id = u.id;

-- name: EventPayload :one
SELECT e.payload FROM postlane.events e WHERE e.tenant = @tenant AND e.id = @id;

-- name: EventContent :one
SELECT e.content_type, e.payload FROM postlane.events e WHERE e.tenant = @tenant AND e.id = @id;

-- name: EventShow :one
--
-- An event without its payload.
SELECT e.tenant, e.id, e.seq, e.type, e.asset, e.content_type, octet_length(e.payload)::integer AS payload_size, e.created_at
FROM postlane.events e WHERE e.tenant = @tenant AND e.id = @id;

-- name: AssetSerialize :exec
--
-- Makes transactions that write about the same assets take turns, until they end.
-- In the order of the hashes, so that two calls with the same assets in another
-- order cannot wait for each other.
SELECT pg_advisory_xact_lock(k.key)
FROM (SELECT DISTINCT hashtextextended(a.asset, 7165134472) AS key
      FROM unnest(@assets::text[]) AS a (asset) ORDER BY 1) k;

-- name: EventUndo :exec
--
-- Takes back what EventEnqueue stored in this transaction, where another event of the
-- same call turned out to be taken.
WITH u AS (
    SELECT unnest(@tenants::text[]) AS tenant, unnest(@ids::text[]) AS id, unnest(@seqs::bigint[]) AS seq
),
targets AS MATERIALIZED (
    SELECT DISTINCT p.subscription_id, u.seq
    FROM u JOIN postlane.subscription_patterns p ON p.tenant = u.tenant
),
undone AS (
    DELETE FROM postlane.deliveries d USING targets t
    WHERE d.subscription_id = t.subscription_id AND d.seq = t.seq
    RETURNING 1
),
gone AS (
    DELETE FROM postlane.events e USING u WHERE e.tenant = u.tenant AND e.id = u.id AND e.seq = u.seq
    RETURNING 1
)
SELECT (SELECT count(*) FROM undone) + (SELECT count(*) FROM gone);

-- name: EventEnqueueOne :many
--
-- EventEnqueue for one event, which is what most transactions have: without arrays to
-- unfold and streams to sort it costs a third less. The payload is read as a document at
-- most once, and not at all where it meets no conditions.
WITH stored AS (
    INSERT INTO postlane.events (seq, tenant, id, type, asset, content_type, payload, traceparent)
    VALUES (nextval('postlane.delivery_seq'), @tenant, @id, @type, sqlc.narg('asset'), @content_type, @payload, sqlc.narg('traceparent'))
    ON CONFLICT (tenant, id) DO NOTHING
    RETURNING seq
),
fanned AS (
    INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, ready, due_at)
    SELECT w.subscription_id, s.seq, @tenant, @id, @type, sqlc.narg('asset'),
           CASE WHEN sqlc.narg('due_at')::timestamptz IS NULL THEN s.seq END, sqlc.narg('due_at')::timestamptz
    FROM stored s
    CROSS JOIN (
        SELECT p.subscription_id, p.conditions FROM postlane.subscription_patterns p
        WHERE p.tenant = @tenant AND p.pattern = ANY (@patterns::text[])
        OFFSET 0
    ) w
    WHERE w.conditions IS NULL
       OR jsonb_path_match((SELECT postlane.event_json(@payload::bytea, @content_type::text)), w.conditions, '{}', true)
)
SELECT s.seq, CASE WHEN @wake::boolean THEN pg_notify('postlane', 'delivery')::text ELSE '' END::text AS woken
FROM stored s;

-- name: EventEnqueueNew :one
--
-- EventEnqueueOne for an event whose id was made for it, so that no other has it: nothing
-- waits to see whether it was stored, which saves an eighth.
WITH next AS (
    SELECT nextval('postlane.delivery_seq') AS seq
),
fanned AS (
    INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, ready, due_at)
    SELECT w.subscription_id, (SELECT n.seq FROM next n), @tenant, @id, @type, sqlc.narg('asset'),
           CASE WHEN sqlc.narg('due_at')::timestamptz IS NULL THEN (SELECT n.seq FROM next n) END, sqlc.narg('due_at')::timestamptz
    FROM (
        SELECT p.subscription_id, p.conditions FROM postlane.subscription_patterns p
        WHERE p.tenant = @tenant AND p.pattern = ANY (@patterns::text[])
        OFFSET 0
    ) w
    WHERE w.conditions IS NULL
       OR jsonb_path_match((SELECT postlane.event_json(@payload::bytea, @content_type::text)), w.conditions, '{}', true)
)
INSERT INTO postlane.events (seq, tenant, id, type, asset, content_type, payload, traceparent)
VALUES ((SELECT n.seq FROM next n), @tenant, @id, @type, sqlc.narg('asset'), @content_type, @payload, sqlc.narg('traceparent'))
RETURNING seq, CASE WHEN @wake::boolean THEN pg_notify('postlane', 'delivery')::text ELSE '' END::text AS woken;
