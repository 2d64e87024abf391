-- Encrypting what is stored under another key: signing secrets, and headers. Both tables
-- are as large as there are endpoints.

-- name: SecretStale :many
--
-- The next secrets that another key than the given one encrypts, or none.
SELECT k.subscription_id, k.number, k.secret, coalesce(k.key_id, '')::text AS key_id
FROM postlane.subscription_secrets k
WHERE (k.subscription_id > @after::bigint OR (k.subscription_id = @after::bigint AND k.number > @after_number::integer))
  AND k.key_id IS DISTINCT FROM @current_key::text
ORDER BY k.subscription_id, k.number LIMIT @max::integer;

-- name: SecretReencrypt :execrows
--
-- No row: it was written anew meanwhile, or is gone. What is encrypted stays the same, so
-- no revision rises and nobody has to read it again.
UPDATE postlane.subscription_secrets
SET secret = @sealed, key_id = sqlc.narg('key_id')
WHERE subscription_id = @subscription_id AND number = @number AND secret = @was;

-- name: HeadersStale :many
--
-- The next headers of subscriptions that another key than the given one encrypts, or none.
SELECT s.id, s.headers, coalesce(s.headers_key_id, '')::text AS key_id
FROM postlane.subscriptions s
WHERE s.id > @after::bigint AND s.headers IS NOT NULL AND s.headers_key_id IS DISTINCT FROM @current_key::text
ORDER BY s.id LIMIT @max::integer;

-- name: HeadersReencrypt :execrows
UPDATE postlane.subscriptions SET headers = @sealed, headers_key_id = sqlc.narg('key_id') WHERE id = @id AND headers = @was;

-- name: StaleCount :one
--
-- How many secrets and headers another key than the given one encrypts, or none.
SELECT ((SELECT count(*) FROM postlane.subscription_secrets k WHERE k.key_id IS DISTINCT FROM @current_key::text)
      + (SELECT count(*) FROM postlane.subscriptions s WHERE s.headers IS NOT NULL AND s.headers_key_id IS DISTINCT FROM @current_key::text))::bigint;
