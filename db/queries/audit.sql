-- Who changed what, and what came of it. A row is written before the change begins and
-- completed after it, so that one which ended a process is on record too.

-- name: AuditBegin :one
INSERT INTO postlane.audit (tenant, actor, actor_name, action, target)
VALUES (sqlc.narg('tenant'), @actor, @actor_name, @action, sqlc.narg('target'))
RETURNING id;

-- name: AuditEnd :exec
UPDATE postlane.audit
SET status = @status, outcome = @outcome, tenant = sqlc.narg('tenant'), target = sqlc.narg('target'), detail = sqlc.narg('detail')
WHERE id = @id;

-- name: AuditRecord :exec
--
-- Both at once, for what happens so often that a second write would be felt.
INSERT INTO postlane.audit (tenant, actor, actor_name, action, target, detail, status, outcome)
VALUES (sqlc.narg('tenant'), @actor, @actor_name, @action, sqlc.narg('target'), sqlc.narg('detail'), @status, @outcome);

-- name: AuditList :many
--
-- Newest first, a page at a time; of all.
SELECT * FROM postlane.audit WHERE id < @before ORDER BY id DESC LIMIT @max::integer;

-- name: AuditListTenant :many
--
-- The same of one tenant, by its index.
SELECT * FROM postlane.audit WHERE tenant = @tenant::text AND id < @before ORDER BY tenant DESC, id DESC LIMIT @max::integer;
