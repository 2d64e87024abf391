-- What a subscription may have beyond its settings: a key that makes v1a signatures, and
-- headers of its own. Each changes the revision, so that dispatchers read it again.
-- And a rate limit, which claims read.

-- name: SubscriptionAddKey :exec
--
-- Signs with another v1a key from now on. What signed before is the caller's to end.
WITH given AS (
    SELECT @id::bigint AS id, @key::bytea AS key, sqlc.narg('key_id')::text AS key_id, @public_key::text AS public_key
),
changed AS (
    UPDATE postlane.subscriptions s SET public_key = g.public_key, revision = s.revision + 1
    FROM given g WHERE s.id = g.id
)
INSERT INTO postlane.subscription_secrets (subscription_id, kind, number, secret, key_id)
SELECT g.id, 'v1a', 1 + coalesce((SELECT max(k.number) FROM postlane.subscription_secrets k WHERE k.subscription_id = g.id), 0), g.key, g.key_id
FROM given g;

-- name: SubscriptionDropKeys :exec
--
-- Ends v1a signatures at once.
WITH gone AS (
    DELETE FROM postlane.subscription_secrets k WHERE k.subscription_id = @id AND k.kind = 'v1a'
)
UPDATE postlane.subscriptions SET public_key = NULL, revision = revision + 1 WHERE id = @id;

-- name: SubscriptionSetHeaders :exec
UPDATE postlane.subscriptions
SET headers = sqlc.narg('headers'), headers_key_id = sqlc.narg('key_id'), header_names = sqlc.narg('names')::text[], revision = revision + 1
WHERE id = @id;

-- name: SubscriptionSetRate :exec
--
-- Limits the rate of requests. Under a new limit nothing waits longer than its interval.
WITH given AS (
    SELECT @id::bigint AS id, @requests::integer AS requests, @per_s::integer AS per_s, @interval_us::bigint AS interval_us,
           coalesce(sqlc.narg('now')::timestamptz, now()) AS at
),
changed AS (
    UPDATE postlane.subscriptions s SET rate_limit = g.requests, rate_per_s = g.per_s
    FROM given g WHERE s.id = g.id
)
INSERT INTO postlane.paces AS p (subscription_id, interval_us, next_at)
SELECT g.id, g.interval_us, g.at FROM given g
ON CONFLICT (subscription_id) DO UPDATE
SET interval_us = excluded.interval_us,
    next_at = least(p.next_at, excluded.next_at + excluded.interval_us * interval '1 microsecond');

-- name: SubscriptionDropRate :exec
WITH gone AS (
    DELETE FROM postlane.paces p WHERE p.subscription_id = @id
)
UPDATE postlane.subscriptions SET rate_limit = NULL, rate_per_s = NULL WHERE id = @id;
