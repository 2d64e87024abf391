-- Event types: a description and a schema for the payloads of a tenant's events of a type.

-- name: EventTypePut :one
--
-- Writes an event type, new or in place of the one of that name. updated_at grows with
-- every version, also when the clock does not. Where only one version may be replaced, it is
-- the one that was written at that time, or none. No row: that is not what there is, or it
-- would be new and the tenant has max of them; some more where several are written at once.
INSERT INTO postlane.event_types AS t (tenant, name, description, schema, validate, deprecated, updated_at)
SELECT @tenant::text, @name::text, @description::text, @schema::text, @validate::boolean, @deprecated::boolean, clock_timestamp()
WHERE EXISTS (SELECT 1 FROM postlane.event_types h WHERE h.tenant = @tenant::text AND h.name = @name::text)
   OR ((@any_version::boolean OR sqlc.narg('version')::timestamptz IS NULL)
       AND (SELECT count(*) FROM (SELECT 1 FROM postlane.event_types h WHERE h.tenant = @tenant::text LIMIT @max::integer) q) < @max::integer)
ON CONFLICT (tenant, name) DO UPDATE SET
    description = excluded.description, schema = excluded.schema, validate = excluded.validate, deprecated = excluded.deprecated,
    updated_at = greatest(excluded.updated_at, t.updated_at + interval '1 microsecond')
WHERE @any_version::boolean OR t.updated_at = sqlc.narg('version')::timestamptz
RETURNING updated_at;

-- name: EventTypeGet :one
SELECT * FROM postlane.event_types WHERE tenant = @tenant AND name = @name;

-- name: EventTypeList :many
--
-- A tenant's, in the order of names, a page at a time; with their schemas if wanted, which
-- may be large.
SELECT t.tenant, t.name, t.description, (CASE WHEN @schemas::boolean THEN t.schema ELSE '' END)::text AS schema, t.validate, t.deprecated, t.updated_at
FROM postlane.event_types t
WHERE t.tenant = @tenant AND t.name > @after
ORDER BY t.name LIMIT @max::integer;

-- name: EventTypeValidated :many
--
-- Which of a tenant's types are validated, and their versions. One probe of a small index
-- where there are none.
SELECT t.name, t.updated_at FROM postlane.event_types t
WHERE t.tenant = @tenant AND t.validate
ORDER BY t.name;

-- name: EventTypeDelete :execrows
DELETE FROM postlane.event_types WHERE tenant = @tenant AND name = @name;
