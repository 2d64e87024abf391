-- What a subscription may have beyond its settings: a key that makes v1a signatures, and
-- headers of its own. Each changes the revision, so that dispatchers read it again.

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
