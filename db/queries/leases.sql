-- name: LeaseDrop :many
--
-- Ends leases, named by stream, delivery and fence, and answers with those that
-- were the caller's to end. Alone, this releases: the delivery is as ready as before
-- its claim and no attempt is charged. At the end of settling it runs as a statement
-- of its own after the rows of `deliveries` are written: a claim waits for a lease
-- that is being deleted, and may hold a row that settling needs.
WITH u AS (
    SELECT unnest(@subscription_ids::bigint[]) AS subscription_id, unnest(@assets::text[]) AS asset,
           unnest(@seqs::bigint[]) AS seq, unnest(@fences::bigint[]) AS fence
),
ended AS (
    DELETE FROM postlane.leases l
    USING u
    WHERE l.subscription_id = u.subscription_id
      AND coalesce(l.asset, '') = u.asset
      AND l.seq = u.seq
      AND l.fence = u.fence
    RETURNING l.subscription_id, l.seq, l.fence
)
SELECT e.subscription_id, e.seq, e.fence FROM ended e;

-- name: LeaseAdvance :exec
--
-- Moves leases on to a later delivery of their streams, after the counted ones before
-- it are settled in the same transaction. What changes is in no index, so this is a
-- HOT update. The time of the claim stays: by it a request may still start.
WITH u AS (
    SELECT unnest(@subscription_ids::bigint[]) AS subscription_id, unnest(@assets::text[]) AS asset,
           unnest(@seqs::bigint[]) AS seq, unnest(@fences::bigint[]) AS fence, unnest(@counts::integer[]) AS count,
           unnest(@next_seqs::bigint[]) AS next_seq, unnest(@next_event_ids::text[]) AS next_event_id
)
UPDATE postlane.leases l
SET seq = u.next_seq, event_id = u.next_event_id, ahead = greatest(l.ahead - u.count, 0)
FROM u
WHERE l.subscription_id = u.subscription_id
  AND coalesce(l.asset, '') = u.asset
  AND l.seq = u.seq
  AND l.fence = u.fence;

-- name: LeaseRenew :many
--
-- Moves the end of leases to lease_ms from now and answers with those that the
-- caller still holds, wherever in their streams they stand. An expired lease that
-- nobody has reclaimed yet is still held.
WITH u AS (
    SELECT unnest(@subscription_ids::bigint[]) AS subscription_id, unnest(@assets::text[]) AS asset,
           unnest(@fences::bigint[]) AS fence
),
until AS MATERIALIZED (
    SELECT coalesce(sqlc.narg('now')::timestamptz, now()) AS at, @lease_ms::bigint AS lease_ms
),
renewed AS (
    UPDATE postlane.leases l
    SET lease_until = n.at + n.lease_ms * interval '1 millisecond'
    FROM u CROSS JOIN until n
    WHERE l.subscription_id = u.subscription_id
      AND coalesce(l.asset, '') = u.asset
      AND l.fence = u.fence
    RETURNING l.subscription_id, coalesce(l.asset, '')::text AS asset, l.fence
)
SELECT r.subscription_id, r.asset, r.fence FROM renewed r;

-- name: LeaseReclaim :many
--
-- Takes back up to max deliveries whose lease ran out. The attempt stays charged,
-- since the request may have arrived, and is recorded as stalled. One that has
-- used up its attempts is dead; its subscription's failure count does not move, for
-- the fault was the worker's. The leases themselves go with LeaseDrop, in the same
-- transaction.
--
-- Locks the leases first, so a worker that settles meanwhile finds its lease gone,
-- and one that is settling now is stepped over.
WITH expired AS MATERIALIZED (
    SELECT l.subscription_id, l.seq, l.fence, l.attempt, l.claimed_at, l.tenant, l.asset, l.claimant
    FROM postlane.leases l
    WHERE l.lease_until <= coalesce(sqlc.narg('now')::timestamptz, now())
    LIMIT @max::integer
    FOR UPDATE OF l SKIP LOCKED
),
judged AS MATERIALIZED (
    SELECT x.subscription_id, x.seq, x.attempt, s.deleted_at IS NOT NULL AS deleted,
           x.attempt >= s.max_attempts AS dead,
           s.on_dead = 'hold' AND s.deleted_at IS NULL AS hold
    FROM expired x
    JOIN postlane.subscriptions s ON s.id = x.subscription_id
),
kept AS (
    UPDATE postlane.deliveries d
    SET attempts = j.attempt,
        ready    = CASE WHEN NOT j.dead THEN nextval('postlane.delivery_seq') END,
        held_at  = CASE WHEN j.dead THEN coalesce(sqlc.narg('now')::timestamptz, now()) END,
        reason   = CASE WHEN j.dead THEN 'stalled' END
    FROM judged j
    WHERE d.subscription_id = j.subscription_id AND d.seq = j.seq
      AND NOT j.deleted AND (NOT j.dead OR j.hold)
    RETURNING d.subscription_id, d.seq, d.tenant, d.event_id, d.event_type, d.asset, d.attempts, d.reason, d.held_at,
              CASE WHEN d.held_at IS NULL THEN 'pending' ELSE 'held' END AS state
),
gone AS (
    DELETE FROM postlane.deliveries d
    USING judged j
    WHERE d.subscription_id = j.subscription_id AND d.seq = j.seq
      AND (j.deleted OR (j.dead AND NOT j.hold))
    RETURNING d.subscription_id, d.seq, d.tenant, d.event_id, d.event_type, d.asset, d.created_at, d.attempts
),
logged AS (
    INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, asset, created_at, settled_at, attempts, state, reason)
    SELECT g.subscription_id, g.seq, g.tenant, g.event_id, g.event_type, g.asset, g.created_at,
           coalesce(sqlc.narg('now')::timestamptz, now()), g.attempts + 1,
           CASE WHEN j.deleted THEN 'discarded' ELSE 'dead' END,
           CASE WHEN j.deleted THEN 'subscription deleted' ELSE 'stalled' END
    FROM gone g JOIN judged j ON j.subscription_id = g.subscription_id AND j.seq = g.seq
    RETURNING subscription_id, seq, tenant, event_id, event_type, asset, attempts, state, reason
),
tried AS (
    INSERT INTO postlane.attempts (subscription_id, seq, fence, number, started_at, tenant, outcome, claimant)
    SELECT x.subscription_id, x.seq, x.fence, x.attempt, x.claimed_at, x.tenant, 'stalled', x.claimant
    FROM expired x
),
told AS MATERIALIZED (
    SELECT postlane.tell_dead(x.tenant, x.subscription_id, x.seq, x.event_id, x.event_type, x.asset, x.attempts, x.reason, x.held) AS events
    FROM (
        SELECT l.tenant, l.subscription_id, l.seq, l.event_id, l.event_type, l.asset, l.attempts, l.reason, false AS held
        FROM logged l WHERE l.state = 'dead'
        UNION ALL
        SELECT k.tenant, k.subscription_id, k.seq, k.event_id, k.event_type, k.asset, k.attempts, k.reason, true
        FROM kept k WHERE k.held_at IS NOT NULL
        ORDER BY subscription_id, seq
    ) x
)
SELECT x.subscription_id, x.seq, x.fence, x.attempt, x.asset, x.claimant,
       coalesce((SELECT k.state FROM kept k WHERE k.subscription_id = x.subscription_id AND k.seq = x.seq),
                (SELECT g.state FROM logged g WHERE g.subscription_id = x.subscription_id AND g.seq = x.seq),
                'gone')::text AS state,
       (SELECT coalesce(sum(t.events), 0) FROM told t)::bigint AS told
FROM expired x;
