-- Returns of dead letters to their streams, and who asked for them.

-- name: RevivalRecord :exec
--
-- In the transaction that revives, after it: whoever revives the same delivery at the
-- same time waits for its row and finds it alive. Its attempts so far are those up to
-- after_fence, since it could not be claimed while it was dead.
WITH given AS (
    SELECT @subscription_id::bigint AS subscription_id, @seq::bigint AS seq, @revived_by::text AS revived_by
)
INSERT INTO postlane.revivals (subscription_id, seq, number, after_fence, revived_by)
SELECT g.subscription_id, g.seq,
       1 + (SELECT count(*) FROM postlane.revivals r WHERE r.subscription_id = g.subscription_id AND r.seq = g.seq),
       coalesce((SELECT max(a.fence) FROM postlane.attempts a WHERE a.subscription_id = g.subscription_id AND a.seq = g.seq), 0),
       g.revived_by
FROM given g;

-- name: RevivalList :many
SELECT r.number, r.after_fence, r.revived_at, r.revived_by
FROM postlane.revivals r
WHERE r.subscription_id = @subscription_id AND r.seq = @seq
ORDER BY r.number;

-- name: RevivalCount :one
--
-- How many dead letters a RevivalBatch from the beginning would meet. Reads them all,
-- by the indexes that hold nothing else; runs under a statement_timeout.
SELECT (SELECT count(*) FROM postlane.settled s
        WHERE s.subscription_id = @subscription_id AND s.state = 'dead' AND s.seq > @after::bigint
          AND (@event_type::text = '' OR s.event_type = @event_type::text)
          AND (NOT @of_asset::boolean OR (coalesce(s.asset, '') = @asset::text))
          AND (NOT @of_reason::boolean OR (coalesce(s.reason, '') = @reason::text))
          AND (sqlc.narg('since')::timestamptz IS NULL OR s.created_at >= sqlc.narg('since')::timestamptz)
          AND (sqlc.narg('until')::timestamptz IS NULL OR s.created_at < sqlc.narg('until')::timestamptz))
     + (SELECT count(*) FROM postlane.deliveries d
        WHERE d.subscription_id = @subscription_id AND d.held_at IS NOT NULL AND d.seq > @after::bigint
          AND (@event_type::text = '' OR d.event_type = @event_type::text)
          AND (NOT @of_asset::boolean OR (coalesce(d.asset, '') = @asset::text))
          AND (NOT @of_reason::boolean OR (coalesce(d.reason, '') = @reason::text))
          AND (sqlc.narg('since')::timestamptz IS NULL OR d.created_at >= sqlc.narg('since')::timestamptz)
          AND (sqlc.narg('until')::timestamptz IS NULL OR d.created_at < sqlc.narg('until')::timestamptz));

-- name: RevivalBatch :many
--
-- Revives the next dead letters of a range, up to max, in the order of their streams,
-- and answers with each that it met and whether it was revived: not if its event is no
-- longer kept, or somebody else acted on it at the same moment.
WITH dead AS MATERIALIZED (
    SELECT s.seq
    FROM postlane.settled s
    WHERE s.subscription_id = @subscription_id AND s.state = 'dead' AND s.seq > @after::bigint
      AND (@event_type::text = '' OR s.event_type = @event_type::text)
      AND (NOT @of_asset::boolean OR (coalesce(s.asset, '') = @asset::text))
      AND (NOT @of_reason::boolean OR (coalesce(s.reason, '') = @reason::text))
      AND (sqlc.narg('since')::timestamptz IS NULL OR s.created_at >= sqlc.narg('since')::timestamptz)
      AND (sqlc.narg('until')::timestamptz IS NULL OR s.created_at < sqlc.narg('until')::timestamptz)
    ORDER BY s.seq LIMIT @max::integer
),
held AS MATERIALIZED (
    SELECT d.seq
    FROM postlane.deliveries d
    WHERE d.subscription_id = @subscription_id AND d.held_at IS NOT NULL AND d.seq > @after::bigint
      AND (@event_type::text = '' OR d.event_type = @event_type::text)
      AND (NOT @of_asset::boolean OR (coalesce(d.asset, '') = @asset::text))
      AND (NOT @of_reason::boolean OR (coalesce(d.reason, '') = @reason::text))
      AND (sqlc.narg('since')::timestamptz IS NULL OR d.created_at >= sqlc.narg('since')::timestamptz)
      AND (sqlc.narg('until')::timestamptz IS NULL OR d.created_at < sqlc.narg('until')::timestamptz)
    ORDER BY d.seq LIMIT @max::integer
),
chosen AS MATERIALIZED (
    SELECT u.seq FROM (SELECT x.seq FROM dead x UNION ALL SELECT h.seq FROM held h) u
    ORDER BY u.seq LIMIT @max::integer
),
back AS (
    DELETE FROM postlane.settled s
    WHERE s.subscription_id = @subscription_id AND s.seq = ANY (array(SELECT c.seq FROM chosen c)) AND s.state = 'dead'
      AND (SELECT e.seq FROM postlane.events e WHERE e.tenant = s.tenant AND e.id = s.event_id LIMIT 1) IS NOT NULL
    RETURNING s.subscription_id, s.seq, s.tenant, s.event_id, s.event_type, s.asset, s.created_at
),
returned AS (
    INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, created_at, ready)
    SELECT b.subscription_id, b.seq, b.tenant, b.event_id, b.event_type, b.asset, b.created_at, nextval('postlane.delivery_seq')
    FROM (SELECT q.subscription_id, q.seq, q.tenant, q.event_id, q.event_type, q.asset, q.created_at FROM back q ORDER BY q.seq) b
    RETURNING seq
),
unheld AS (
    UPDATE postlane.deliveries d
    SET held_at = NULL, reason = NULL, attempts = 0, ready = nextval('postlane.delivery_seq')
    WHERE d.subscription_id = @subscription_id AND d.seq = ANY (array(SELECT c.seq FROM chosen c)) AND d.held_at IS NOT NULL
    RETURNING d.seq
),
revived AS (
    SELECT r.seq FROM returned r UNION ALL SELECT u.seq FROM unheld u
),
noted AS (
    INSERT INTO postlane.revivals (subscription_id, seq, number, after_fence, revived_by)
    SELECT @subscription_id, v.seq,
           1 + (SELECT count(*) FROM postlane.revivals r WHERE r.subscription_id = @subscription_id AND r.seq = v.seq),
           coalesce((SELECT max(a.fence) FROM postlane.attempts a WHERE a.subscription_id = @subscription_id AND a.seq = v.seq), 0),
           @revived_by::text
    FROM revived v
)
SELECT c.seq, (v.seq IS NOT NULL)::boolean AS revived
FROM chosen c LEFT JOIN revived v ON v.seq = c.seq
ORDER BY c.seq;
