-- API keys. What is stored of a key is its SHA-256, so whoever reads the table can
-- call nothing.

-- name: KeyCreate :one
INSERT INTO postlane.api_keys (id, hash, hint, name, tenant, scope)
VALUES (@id, @hash, @hint, @name, sqlc.narg('tenant'), @scope)
RETURNING *;

-- name: KeyFind :one
--
-- The key of a request, by its hash, if it is not revoked: asked at every request, so
-- that a revocation holds from its commit on. One probe of a unique index. stale says
-- that its last use should be noted again.
SELECT k.id, k.name, k.tenant, k.scope, (k.last_used_at IS NULL OR k.last_used_at < now() - interval '1 minute')::boolean AS stale
FROM postlane.api_keys k
WHERE k.hash = @hash AND k.revoked_at IS NULL;

-- name: KeyTouch :exec
--
-- Notes a use of a key, at most once a minute: of requests that come together one writes.
UPDATE postlane.api_keys SET last_used_at = now()
WHERE id = @id AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute');

-- name: KeyList :many
--
-- In the order of ids, a page at a time; of one tenant, or ('') of all. Revoked ones too.
SELECT * FROM postlane.api_keys
WHERE id > @after AND (@tenant::text = '' OR tenant = @tenant::text)
ORDER BY id LIMIT @max::integer;

-- name: KeyRevoke :one
--
-- Revoking again changes nothing.
UPDATE postlane.api_keys SET revoked_at = coalesce(revoked_at, now())
WHERE id = @id
RETURNING *;
