-- The breaker of a subscription. Closed it counts requests in a row that found the
-- endpoint not there; open it lets one request through at a time, which DeliveryClaim
-- takes as the probe, and a success closes it (DeliverySettleDelivered).
--
-- Who writes breakers has locked the subscriptions' rows in the order of their ids
-- (SubscriptionLockSettling), but for a claim, which waits for nobody.

-- name: BreakerBegin :exec
--
-- Makes the rows that BreakerStrike counts in.
WITH given AS (
    SELECT DISTINCT q.id FROM (SELECT unnest(@ids::bigint[]) AS id) q
),
marked AS (
    UPDATE postlane.subscriptions s SET failing = true
    FROM given g WHERE s.id = g.id AND NOT s.failing
)
INSERT INTO postlane.breakers (subscription_id)
SELECT g.id FROM given g
ON CONFLICT (subscription_id) DO NOTHING;

-- name: BreakerStrike :many
--
-- Counts requests that found no endpoint, as many as hold their lease, and answers with
-- the subscriptions whose breakers they opened.
--
-- A closed breaker opens after threshold of them, or when an endpoint asked to be left
-- alone (asked_ms > 0). What was claimed since is the probe: the pause before the next
-- one doubles, from first_ms up to most_ms. What was claimed before changes no more than
-- what the endpoint asked for. Comes before LeaseDrop.
WITH input AS MATERIALIZED (
    SELECT unnest(@subscription_ids::bigint[]) AS subscription_id, unnest(@assets::text[]) AS asset,
           unnest(@froms::bigint[]) AS from_seq, unnest(@fences::bigint[]) AS fence, unnest(@asked_ms::bigint[]) AS asked_ms
),
clock AS MATERIALIZED (
    SELECT coalesce(sqlc.narg('now')::timestamptz, now()) AS at, @threshold::integer AS threshold,
           @first_ms::bigint AS first_ms, @most_ms::bigint AS most_ms
),
struck AS MATERIALIZED (
    SELECT i.subscription_id, count(*)::integer AS failures, max(i.asked_ms) AS asked_ms, max(l.claimed_at) AS claimed_at
    FROM input i
    CROSS JOIN LATERAL (
        SELECT e.claimed_at FROM postlane.leases e
        WHERE e.subscription_id = i.subscription_id AND coalesce(e.asset, '') = i.asset
          AND e.seq = i.from_seq AND e.fence = i.fence
        LIMIT 1
    ) l
    GROUP BY i.subscription_id
),
judged AS MATERIALIZED (
    SELECT b.subscription_id, b.failures + k.failures AS failures, k.asked_ms,
           b.open_since IS NULL AND (b.failures + k.failures >= c.threshold OR k.asked_ms > 0) AS opens,
           coalesce(k.claimed_at > b.open_since, false) AS probed,
           CASE WHEN b.open_since IS NULL THEN c.first_ms ELSE least(b.pause_ms * 2, c.most_ms) END AS pause_ms
    FROM struck k
    JOIN postlane.breakers b ON b.subscription_id = k.subscription_id
    CROSS JOIN clock c
),
written AS (
    UPDATE postlane.breakers b
    SET failures   = j.failures,
        open_since = CASE WHEN j.opens THEN c.at ELSE b.open_since END,
        pause_ms   = CASE WHEN j.opens OR j.probed THEN j.pause_ms ELSE b.pause_ms END,
        probe_at   = CASE WHEN j.opens OR j.probed
                          THEN c.at + (CASE WHEN j.asked_ms > 0 THEN j.asked_ms ELSE j.pause_ms END) * interval '1 millisecond'
                          WHEN j.asked_ms > 0 THEN greatest(b.probe_at, c.at + j.asked_ms * interval '1 millisecond')
                          ELSE b.probe_at END
    FROM judged j CROSS JOIN clock c
    WHERE b.subscription_id = j.subscription_id
    RETURNING b.subscription_id
)
SELECT w.subscription_id
FROM written w JOIN judged j ON j.subscription_id = w.subscription_id
WHERE j.opens;

-- name: BreakerClose :exec
--
-- Forgets what was counted.
WITH gone AS (
    DELETE FROM postlane.breakers b WHERE b.subscription_id = @id
)
UPDATE postlane.subscriptions SET failing = false WHERE id = @id AND failing;

-- name: BreakerList :many
--
-- The open breakers of subscriptions.
SELECT b.subscription_id, b.failures, b.open_since::timestamptz AS open_since, b.probe_at::timestamptz AS probe_at
FROM postlane.breakers b
WHERE b.subscription_id = ANY (@ids::bigint[]) AND b.open_since IS NOT NULL;

-- name: BreakerCount :one
--
-- How many are open of active subscriptions, up to 10,000, and for how many milliseconds
-- the longest of those has been; 0 if none is. A deleted subscription's row stays: what was
-- in flight may write one after the deletion.
SELECT count(*) AS n,
       greatest(coalesce(floor(extract(epoch FROM coalesce(sqlc.narg('now')::timestamptz, now()) - min(o.open_since)) * 1000), 0), 0)::bigint AS longest_ms
FROM (SELECT b.open_since FROM postlane.breakers b
      WHERE b.open_since IS NOT NULL
        AND (SELECT s.id FROM postlane.subscriptions s
             WHERE s.id = b.subscription_id AND s.state = 'active' AND s.deleted_at IS NULL LIMIT 1) IS NOT NULL
      LIMIT 10000) o;

-- name: BreakerStillOpen :many
--
-- Those of subscriptions that are open and still matter.
SELECT b.subscription_id, b.open_since::timestamptz AS open_since
FROM postlane.breakers b
WHERE b.subscription_id = ANY (@ids::bigint[]) AND b.open_since IS NOT NULL
  AND (SELECT s.id FROM postlane.subscriptions s
       WHERE s.id = b.subscription_id AND s.deleted_at IS NULL LIMIT 1) IS NOT NULL;
