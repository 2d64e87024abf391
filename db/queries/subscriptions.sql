-- name: SubscriptionCreate :one
INSERT INTO postlane.subscriptions (id, tenant, url, description, event_types, on_dead, max_attempts, max_in_flight, disable_after, conditions, thin)
VALUES (@id, @tenant, @url, sqlc.narg('description'), @event_types, @on_dead, @max_attempts, sqlc.narg('max_in_flight'), @disable_after,
        sqlc.narg('conditions')::text::jsonb, @thin)
RETURNING *;

-- name: SubscriptionAddSecret :exec
--
-- The first secret of a new subscription.
INSERT INTO postlane.subscription_secrets (subscription_id, number, secret, key_id)
VALUES (@subscription_id, 1, @secret, sqlc.narg('key_id'));

-- name: SubscriptionNotify :exec
--
-- Tells dispatchers, when this commits, that there may be something to do.
SELECT pg_notify('postlane', 'subscription');

-- name: SubscriptionGet :one
SELECT * FROM postlane.subscriptions WHERE id = @id AND deleted_at IS NULL;

-- name: SubscriptionList :many
--
-- In the order of ids, a page at a time; of one tenant, or ('') of all.
SELECT * FROM postlane.subscriptions
WHERE id > @after AND deleted_at IS NULL AND (@tenant::text = '' OR tenant = @tenant::text)
ORDER BY id LIMIT @max::integer;

-- name: SubscriptionUpdate :one
--
-- Writes the settings of a subscription as given: the caller read the row, changed
-- what it means to change, and names the revision it read. No row: somebody else
-- changed it meanwhile, or it is gone.
UPDATE postlane.subscriptions
SET url = @url, description = sqlc.narg('description'), event_types = @event_types, on_dead = @on_dead,
    max_attempts = @max_attempts, max_in_flight = sqlc.narg('max_in_flight'), disable_after = @disable_after,
    conditions = sqlc.narg('conditions')::text::jsonb, thin = @thin,
    revision = revision + 1, updated_at = now()
WHERE id = @id AND revision = @revision AND deleted_at IS NULL
RETURNING *;

-- name: SubscriptionSetState :one
--
-- Enabling again forgets the failures that disabled it.
UPDATE postlane.subscriptions s
SET state = @state,
    state_reason  = sqlc.narg('reason'),
    state_since   = CASE WHEN s.state = @state THEN s.state_since ELSE now() END,
    failure_count = CASE WHEN @state = 'active' THEN 0 ELSE s.failure_count END,
    revision = s.revision + 1, updated_at = now()
WHERE s.id = @id AND s.deleted_at IS NULL
RETURNING *;

-- name: SubscriptionDelete :one
--
-- Marks a subscription deleted. No event reaches it from now on; what is pending is
-- discarded in the background, what is settled stays in the log.
UPDATE postlane.subscriptions s
SET deleted_at = now(), revision = s.revision + 1, updated_at = now()
WHERE s.id = @id AND s.deleted_at IS NULL
RETURNING s.id;

-- name: SubscriptionTargets :many
--
-- What a sender needs to know of subscriptions, with every secret that signs now,
-- the current one first.
SELECT s.id, s.revision, s.tenant, s.url, s.thin, s.headers, coalesce(s.headers_key_id, '')::text AS headers_key_id,
       array(SELECT k.secret FROM postlane.subscription_secrets k
             WHERE k.subscription_id = s.id AND (k.expires_at IS NULL OR k.expires_at > now())
             ORDER BY k.expires_at DESC NULLS FIRST, k.number DESC)::bytea[] AS secrets,
       array(SELECT coalesce(k.key_id, '') FROM postlane.subscription_secrets k
             WHERE k.subscription_id = s.id AND (k.expires_at IS NULL OR k.expires_at > now())
             ORDER BY k.expires_at DESC NULLS FIRST, k.number DESC)::text[] AS key_ids,
       coalesce((SELECT extract(epoch FROM min(k.expires_at) - now()) * 1000 FROM postlane.subscription_secrets k
                 WHERE k.subscription_id = s.id AND k.expires_at > now()), -1)::bigint AS secret_expires_ms
FROM postlane.subscriptions s
WHERE s.id = ANY (@ids::bigint[]);

-- name: SubscriptionLock :one
--
-- Locks a subscription that is not deleted.
SELECT s.id FROM postlane.subscriptions s WHERE s.id = @id AND s.deleted_at IS NULL FOR NO KEY UPDATE;

-- name: SubscriptionRotateSecret :one
--
-- Adds a secret and lets the current one go on signing for overlap_ms. Comes after
-- SubscriptionLock, as a later statement: of two rotations at once the second then
-- sees the secret of the first.
WITH given AS MATERIALIZED (
    SELECT @id::bigint AS id, @overlap_ms::bigint AS overlap_ms, @secret::bytea AS secret, sqlc.narg('key_id')::text AS key_id
),
old AS (
    UPDATE postlane.subscription_secrets k
    SET expires_at = now() + g.overlap_ms * interval '1 millisecond'
    FROM given g
    WHERE k.subscription_id = g.id AND k.expires_at IS NULL
),
changed AS (
    UPDATE postlane.subscriptions s SET revision = s.revision + 1, updated_at = now()
    FROM given g
    WHERE s.id = g.id AND s.deleted_at IS NULL
    RETURNING s.id
),
added AS (
    INSERT INTO postlane.subscription_secrets (subscription_id, number, secret, key_id)
    SELECT g.id, 1 + coalesce((SELECT max(k.number) FROM postlane.subscription_secrets k WHERE k.subscription_id = g.id), 0),
           g.secret, g.key_id
    FROM changed c JOIN given g ON g.id = c.id
    RETURNING number
)
SELECT a.number FROM added a;

-- name: SubscriptionAnyActive :one
SELECT EXISTS (SELECT 1 FROM postlane.subscriptions s WHERE s.state = 'active' AND s.deleted_at IS NULL);

-- name: SubscriptionActiveCount :one
--
-- How many are active, up to 10,000.
SELECT count(*) FROM (SELECT 1 FROM postlane.subscriptions s WHERE s.state = 'active' AND s.deleted_at IS NULL ORDER BY s.id LIMIT 10000) a;

-- name: SubscriptionLockSettling :exec
--
-- Comes first where a transaction settles successes and failures, or meets breakers: locks
-- the subscriptions that the ones will forgive and the others charge, in the order of their ids. Each
-- settling statement orders only its own, and two transactions that forgive and charge
-- the same subscriptions crosswise would wait for each other in a circle.
SELECT s.id
FROM (
    SELECT f.id
    FROM (SELECT unnest(@failed::bigint[]) AS id, unnest(@attempts::integer[]) AS attempt) f
    JOIN postlane.subscriptions m ON m.id = f.id
    WHERE f.attempt >= m.max_attempts
    UNION
    SELECT u.id FROM (SELECT unnest(@unavailable::bigint[]) AS id) u
    UNION
    SELECT o.id
    FROM (SELECT unnest(@succeeded::bigint[]) AS id) o
    JOIN postlane.subscriptions m ON m.id = o.id
    WHERE m.failure_count > 0 OR m.failing
) x
JOIN postlane.subscriptions s ON s.id = x.id
ORDER BY s.id
FOR NO KEY UPDATE OF s;

-- name: SubscriptionYoungClaims :one
--
-- The age in milliseconds of the youngest claim on a subscription, -1 if none is in
-- flight.
SELECT coalesce((SELECT floor(extract(epoch FROM clock_timestamp() - max(l.claimed_at)) * 1000)
                 FROM postlane.leases l WHERE l.subscription_id = @id), -1)::bigint;
