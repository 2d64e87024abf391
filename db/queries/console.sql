-- What the console shows beyond the log, the streams and the keys. A page reads what it
-- shows: counts stop at a limit, lists walk an index. All run under LogSettings, in a
-- transaction that may only read, and so end in time.
--
-- tenant '' stands for all tenants.

-- name: ConsoleSessionCreate :exec
--
-- A session ends at its time, with its key, or by ConsoleSessionEnd. Those whose time
-- is over go when a new one begins.
WITH over AS (
    DELETE FROM postlane.console_sessions s WHERE s.expires_at <= now()
)
INSERT INTO postlane.console_sessions (hash, key_hash, expires_at)
VALUES (@hash, @key_hash, now() + make_interval(secs => @seconds::double precision));

-- name: ConsoleSessionFind :one
--
-- Whose session it is, asked at every request, so that revoking a key ends its sessions
-- with the commit. No key's row: that of the environment's key, if the hash is still its.
SELECT s.key_hash, coalesce(k.id, 0)::bigint AS key_id, coalesce(k.name, '')::text AS name, coalesce(k.tenant, '')::text AS tenant,
       coalesce(k.scope, '')::text AS scope, (k.id IS NOT NULL AND k.revoked_at IS NOT NULL)::boolean AS revoked,
       (k.id IS NOT NULL AND (k.last_used_at IS NULL OR k.last_used_at < now() - interval '1 minute'))::boolean AS stale
FROM postlane.console_sessions s
LEFT JOIN postlane.api_keys k ON k.hash = s.key_hash
WHERE s.hash = @hash AND s.expires_at > now();

-- name: ConsoleSessionEnd :exec
DELETE FROM postlane.console_sessions WHERE hash = @hash;

-- name: ConsoleTotals :one
--
-- How much there is, counted up to max of each: in a stream, of that waiting for another
-- attempt, holding a stream, and dead. Retries are found by their index, which is not by
-- tenant: of one tenant they are those among the first 20,000.
SELECT
    (CASE WHEN @tenant::text = ''
          THEN (SELECT count(*) FROM (SELECT 1 FROM postlane.deliveries d LIMIT @max::integer) x)
          ELSE (SELECT count(*) FROM (
                SELECT 1 FROM postlane.subscriptions s
                CROSS JOIN LATERAL (SELECT 1 FROM postlane.deliveries d WHERE d.subscription_id = s.id LIMIT @max::integer) y
                WHERE s.tenant = @tenant::text AND s.deleted_at IS NULL LIMIT @max::integer) x) END)::bigint AS live,
    (SELECT count(*) FROM (
        SELECT 1 FROM (SELECT d.tenant FROM postlane.deliveries d WHERE d.due_at IS NOT NULL LIMIT 20000) q
        WHERE @tenant::text = '' OR q.tenant = @tenant::text LIMIT @max::integer) x)::bigint AS retrying,
    (SELECT count(*) FROM (
        SELECT 1 FROM (SELECT d.tenant FROM postlane.deliveries d WHERE d.held_at IS NOT NULL LIMIT 20000) q
        WHERE @tenant::text = '' OR q.tenant = @tenant::text LIMIT @max::integer) x)::bigint AS held,
    (CASE WHEN @tenant::text = ''
          THEN (SELECT count(*) FROM (SELECT 1 FROM postlane.settled t WHERE t.state = 'dead' LIMIT @max::integer) x)
          ELSE (SELECT count(*) FROM (
                SELECT 1 FROM postlane.subscriptions s
                CROSS JOIN LATERAL (SELECT 1 FROM postlane.settled t WHERE t.subscription_id = s.id AND t.state = 'dead' LIMIT @max::integer) y
                WHERE s.tenant = @tenant::text AND s.deleted_at IS NULL LIMIT @max::integer) x) END)::bigint AS dead,
    (SELECT count(*) FROM postlane.leases l WHERE @tenant::text = '' OR l.tenant = @tenant::text)::bigint AS in_flight;

-- name: ConsoleOldestDue :many
--
-- Of each active subscription what it has had waiting for longest that could be claimed
-- now; the longest waiting of them. Walks the ready index, up to 1,000 subscriptions.
WITH RECURSIVE walk (id, n) AS (
    SELECT (SELECT d.subscription_id FROM postlane.deliveries d
            WHERE d.ready IS NOT NULL ORDER BY d.subscription_id LIMIT 1), 1
    UNION ALL
    SELECT (SELECT d.subscription_id FROM postlane.deliveries d
            WHERE d.ready IS NOT NULL AND d.subscription_id > w.id
            ORDER BY d.subscription_id LIMIT 1), w.n + 1
    FROM walk w WHERE w.id IS NOT NULL AND w.n < 1000
)
SELECT s.id AS subscription_id, s.url, h.seq, h.event_type, h.asset, h.created_at
FROM walk w
JOIN postlane.subscriptions s ON s.id = w.id AND s.state = 'active' AND s.deleted_at IS NULL
                             AND (@tenant::text = '' OR s.tenant = @tenant::text)
CROSS JOIN LATERAL (
    SELECT d.seq, d.event_type, d.asset, d.created_at FROM postlane.deliveries d
    WHERE d.subscription_id = w.id AND d.ready IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM postlane.leases l
                      WHERE l.subscription_id = d.subscription_id AND coalesce(l.asset, '') = coalesce(d.asset, '') AND l.seq = d.seq)
    ORDER BY d.ready LIMIT 1
) h
ORDER BY h.created_at LIMIT @max::integer;

-- name: ConsoleWorkers :many
--
-- Who holds leases, and how many of them have run out without being taken back.
SELECT l.claimant, count(*) AS leases,
       (count(*) FILTER (WHERE l.lease_until < now()))::bigint AS expired,
       floor(extract(epoch FROM now() - min(l.claimed_at)) * 1000)::bigint AS longest_ms,
       floor(extract(epoch FROM min(l.lease_until) - now()) * 1000)::bigint AS ends_ms
FROM postlane.leases l
GROUP BY l.claimant ORDER BY l.claimant LIMIT 200;

-- name: ConsoleUnwell :many
--
-- The subscriptions that are not active, those that the system stopped first.
SELECT s.id, s.tenant, s.url, s.state, s.state_reason, s.state_since
FROM postlane.subscriptions s
WHERE s.deleted_at IS NULL AND s.state <> 'active' AND (@tenant::text = '' OR s.tenant = @tenant::text)
ORDER BY s.state, s.state_since DESC LIMIT @max::integer;

-- name: ConsoleSubscriptions :many
--
-- A page of subscriptions: those that the system stopped, those that somebody paused,
-- the others; each with what waits, counted up to 1,000. Sorts the tenant's
-- subscriptions, and reads streams of those on the page alone.
WITH page AS MATERIALIZED (
    SELECT s.*, (CASE s.state WHEN 'disabled' THEN 0 WHEN 'paused' THEN 1 ELSE 2 END)::integer AS place
    FROM postlane.subscriptions s
    WHERE s.deleted_at IS NULL AND (@tenant::text = '' OR s.tenant = @tenant::text)
      AND (@state::text = '' OR s.state = @state::text)
      AND (@search::text = '' OR position(lower(@search::text) IN lower(s.url)) > 0 OR position(lower(@search::text) IN lower(coalesce(s.description, ''))) > 0)
      AND ((CASE s.state WHEN 'disabled' THEN 0 WHEN 'paused' THEN 1 ELSE 2 END), s.id) > (@after_place::integer, @after_id::bigint)
    ORDER BY place, s.id
    LIMIT @max::integer
)
SELECT p.id, p.tenant, p.url, p.description, p.event_types, p.state, p.state_reason, p.state_since, p.on_dead, p.place,
       coalesce((SELECT b.open_since IS NOT NULL FROM postlane.breakers b WHERE b.subscription_id = p.id LIMIT 1), false)::boolean AS unavailable,
       (SELECT count(*) FROM (SELECT 1 FROM postlane.deliveries d WHERE d.subscription_id = p.id LIMIT 1001) x)::bigint AS live,
       (SELECT count(*) FROM (SELECT 1 FROM postlane.deliveries d WHERE d.subscription_id = p.id AND d.held_at IS NOT NULL LIMIT 1001) x)::bigint AS held,
       (SELECT count(*) FROM (SELECT 1 FROM postlane.settled t WHERE t.subscription_id = p.id AND t.state = 'dead' LIMIT 1001) x)::bigint AS dead,
       coalesce((SELECT floor(extract(epoch FROM now() - d.created_at) * 1000) FROM postlane.deliveries d
                 WHERE d.subscription_id = p.id ORDER BY d.seq LIMIT 1), -1)::bigint AS oldest_ms
FROM page p
ORDER BY p.place, p.id;

-- name: ConsoleWaiting :one
--
-- What one subscription has in its streams, counted up to max of each.
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM postlane.deliveries d WHERE d.subscription_id = @subscription_id LIMIT @max::integer) x)::bigint AS live,
    (SELECT count(*) FROM (SELECT 1 FROM postlane.deliveries d
                           WHERE d.subscription_id = @subscription_id AND d.due_at IS NOT NULL LIMIT @max::integer) x)::bigint AS retrying,
    (SELECT count(*) FROM (SELECT 1 FROM postlane.deliveries d
                           WHERE d.subscription_id = @subscription_id AND d.held_at IS NOT NULL LIMIT @max::integer) x)::bigint AS held,
    (SELECT count(*) FROM (SELECT 1 FROM postlane.settled t
                           WHERE t.subscription_id = @subscription_id AND t.state = 'dead' LIMIT @max::integer) x)::bigint AS dead,
    (SELECT count(*) FROM postlane.leases l WHERE l.subscription_id = @subscription_id)::bigint AS in_flight,
    coalesce((SELECT floor(extract(epoch FROM now() - d.created_at) * 1000) FROM postlane.deliveries d
              WHERE d.subscription_id = @subscription_id ORDER BY d.seq LIMIT 1), -1)::bigint AS oldest_ms;

-- name: ConsoleSecrets :many
--
-- What signs a subscription's requests, without the secrets: since when, until when.
SELECT k.number, k.kind, k.created_at, k.expires_at
FROM postlane.subscription_secrets k
WHERE k.subscription_id = @subscription_id AND (k.expires_at IS NULL OR k.expires_at > now())
ORDER BY k.kind, k.number DESC;

-- name: ConsoleNewest :many
--
-- Subscriptions with the seq of their newest delivery before the given one, the newest
-- first: who pages through the log of all of them reads each in this order, until none
-- that is left can have a newer row than the page has. Two probes a subscription.
SELECT s.id, s.tenant, s.url, coalesce(s.newest, 0)::bigint AS newest
FROM (SELECT p.id, p.tenant, p.url,
             greatest((SELECT d.seq FROM postlane.deliveries d WHERE d.subscription_id = p.id AND d.seq < @before::bigint ORDER BY d.seq DESC LIMIT 1),
                      (SELECT t.seq FROM postlane.settled t WHERE t.subscription_id = p.id AND t.seq < @before::bigint ORDER BY t.seq DESC LIMIT 1)) AS newest
      FROM postlane.subscriptions p
      WHERE p.deleted_at IS NULL AND (@tenant::text = '' OR p.tenant = @tenant::text)) s
WHERE s.newest IS NOT NULL
ORDER BY s.newest DESC LIMIT @max::integer;

-- name: ConsoleNewestUndelivered :many
--
-- The same of what is dead or was discarded.
SELECT s.id, s.tenant, s.url, coalesce(s.newest, 0)::bigint AS newest
FROM (SELECT p.id, p.tenant, p.url,
             greatest((SELECT d.seq FROM postlane.deliveries d WHERE d.subscription_id = p.id AND d.held_at IS NOT NULL AND d.seq < @before::bigint ORDER BY d.seq DESC LIMIT 1),
                      (SELECT t.seq FROM postlane.settled t WHERE t.subscription_id = p.id AND t.state <> 'delivered' AND t.seq < @before::bigint ORDER BY t.seq DESC LIMIT 1)) AS newest
      FROM postlane.subscriptions p
      WHERE p.deleted_at IS NULL AND (@tenant::text = '' OR p.tenant = @tenant::text)) s
WHERE s.newest IS NOT NULL
ORDER BY s.newest DESC LIMIT @max::integer;

-- name: ConsoleNewestLive :many
--
-- The same of what is in a stream.
SELECT s.id, s.tenant, s.url, coalesce(s.newest, 0)::bigint AS newest
FROM (SELECT p.id, p.tenant, p.url,
             (SELECT d.seq FROM postlane.deliveries d WHERE d.subscription_id = p.id AND d.seq < @before::bigint ORDER BY d.seq DESC LIMIT 1) AS newest
      FROM postlane.subscriptions p
      WHERE p.deleted_at IS NULL AND (@tenant::text = '' OR p.tenant = @tenant::text)) s
WHERE s.newest IS NOT NULL
ORDER BY s.newest DESC LIMIT @max::integer;

-- name: ConsoleNewestOfAsset :many
--
-- The same of one asset, by the order of its streams: of the others there is no row.
SELECT s.id, s.tenant, s.url, coalesce(s.newest, 0)::bigint AS newest
FROM (SELECT p.id, p.tenant, p.url,
             greatest((SELECT d.seq FROM postlane.deliveries d
                       WHERE d.subscription_id = p.id AND coalesce(d.asset, '') = @asset::text AND d.seq < @before::bigint ORDER BY d.seq DESC LIMIT 1),
                      (SELECT t.seq FROM postlane.settled t
                       WHERE t.subscription_id = p.id AND coalesce(t.asset, '') = @asset::text AND t.seq < @before::bigint ORDER BY t.seq DESC LIMIT 1)) AS newest
      FROM postlane.subscriptions p
      WHERE p.deleted_at IS NULL AND (@tenant::text = '' OR p.tenant = @tenant::text)) s
WHERE s.newest IS NOT NULL
ORDER BY s.newest DESC LIMIT @max::integer;

-- name: ConsoleNeighbours :one
--
-- The deliveries before and after one in its stream, 0 where there is none, and how many
-- stand before it that are not settled, counted up to 1,000.
SELECT
    coalesce(greatest(
        (SELECT d.seq FROM postlane.deliveries d
         WHERE d.subscription_id = @subscription_id AND coalesce(d.asset, '') = @asset::text AND d.seq < @seq::bigint ORDER BY d.seq DESC LIMIT 1),
        (SELECT t.seq FROM postlane.settled t
         WHERE t.subscription_id = @subscription_id AND coalesce(t.asset, '') = @asset::text AND t.seq < @seq::bigint ORDER BY t.seq DESC LIMIT 1)), 0)::bigint AS previous,
    coalesce(least(
        (SELECT d.seq FROM postlane.deliveries d
         WHERE d.subscription_id = @subscription_id AND coalesce(d.asset, '') = @asset::text AND d.seq > @seq::bigint ORDER BY d.seq LIMIT 1),
        (SELECT t.seq FROM postlane.settled t
         WHERE t.subscription_id = @subscription_id AND coalesce(t.asset, '') = @asset::text AND t.seq > @seq::bigint ORDER BY t.seq LIMIT 1)), 0)::bigint AS next,
    coalesce((SELECT d.seq FROM postlane.deliveries d
              WHERE d.subscription_id = @subscription_id AND coalesce(d.asset, '') = @asset::text ORDER BY d.seq LIMIT 1), 0)::bigint AS head,
    (SELECT count(*) FROM (SELECT 1 FROM postlane.deliveries d
                           WHERE d.subscription_id = @subscription_id AND coalesce(d.asset, '') = @asset::text AND d.seq < @seq::bigint LIMIT 1000) x)::bigint AS before;

-- name: ConsoleDeadSubscriptions :many
--
-- The subscriptions that have dead letters, in the order of their ids, up to max after
-- the given one: two loose scans of the indexes that hold nothing else.
WITH RECURSIVE dead (id, n) AS (
    SELECT (SELECT t.subscription_id FROM postlane.settled t WHERE t.state = 'dead' AND t.subscription_id > @after::bigint
            ORDER BY t.subscription_id LIMIT 1), 1
    UNION ALL
    SELECT (SELECT t.subscription_id FROM postlane.settled t WHERE t.state = 'dead' AND t.subscription_id > x.id
            ORDER BY t.subscription_id LIMIT 1), x.n + 1
    FROM dead x WHERE x.id IS NOT NULL AND x.n < 2000
),
held (id, n) AS (
    SELECT (SELECT d.subscription_id FROM postlane.deliveries d WHERE d.held_at IS NOT NULL AND d.subscription_id > @after::bigint
            ORDER BY d.subscription_id LIMIT 1), 1
    UNION ALL
    SELECT (SELECT d.subscription_id FROM postlane.deliveries d WHERE d.held_at IS NOT NULL AND d.subscription_id > x.id
            ORDER BY d.subscription_id LIMIT 1), x.n + 1
    FROM held x WHERE x.id IS NOT NULL AND x.n < 2000
)
SELECT s.id, s.tenant, s.url, s.state
FROM (SELECT d.id FROM dead d UNION SELECT h.id FROM held h) u
JOIN postlane.subscriptions s ON s.id = u.id AND s.deleted_at IS NULL AND (@tenant::text = '' OR s.tenant = @tenant::text)
ORDER BY s.id LIMIT @max::integer;

-- name: ConsoleDeadReasons :many
--
-- The dead letters of a subscription by reason, over the newest max of them.
SELECT x.reason::text AS reason, count(*) AS letters, (count(*) FILTER (WHERE x.held))::bigint AS held,
       max(x.seq)::bigint AS newest, min(x.created_at)::timestamptz AS first_at, max(x.created_at)::timestamptz AS last_at
FROM ((SELECT coalesce(t.reason, '') AS reason, false AS held, t.seq, t.created_at
       FROM postlane.settled t WHERE t.subscription_id = @subscription_id AND t.state = 'dead' ORDER BY t.seq DESC LIMIT @max::integer)
      UNION ALL
      (SELECT coalesce(d.reason, ''), true, d.seq, d.created_at
       FROM postlane.deliveries d WHERE d.subscription_id = @subscription_id AND d.held_at IS NOT NULL ORDER BY d.seq DESC LIMIT @max::integer)) x
GROUP BY x.reason ORDER BY count(*) DESC, x.reason;

-- name: ConsoleDeadOf :many
--
-- The dead letters of a subscription that died of a reason, oldest first, after the given
-- one: to be shown a page at a time, and revived one by one.
SELECT x.seq, x.event_id, x.event_type, x.asset, x.attempts, x.created_at, x.died_at, x.held
FROM ((SELECT t.seq, t.event_id, t.event_type, t.asset, t.attempts, t.created_at, t.settled_at AS died_at, false AS held
       FROM postlane.settled t
       WHERE t.subscription_id = @subscription_id AND t.state = 'dead' AND t.seq > @after::bigint AND coalesce(t.reason, '') = @reason::text
       ORDER BY t.seq LIMIT @max::integer)
      UNION ALL
      (SELECT d.seq, d.event_id, d.event_type, d.asset, d.attempts, d.created_at, coalesce(d.held_at, d.created_at), true
       FROM postlane.deliveries d
       WHERE d.subscription_id = @subscription_id AND d.held_at IS NOT NULL AND d.seq > @after::bigint AND coalesce(d.reason, '') = @reason::text
       ORDER BY d.seq LIMIT @max::integer)) x
ORDER BY x.seq LIMIT @max::integer;

-- name: ConsoleDeadCount :one
--
-- How many ConsoleDeadOf would show, counted up to max.
SELECT ((SELECT count(*) FROM (SELECT 1 FROM postlane.settled t
                               WHERE t.subscription_id = @subscription_id AND t.state = 'dead' AND coalesce(t.reason, '') = @reason::text LIMIT @max::integer) x)
      + (SELECT count(*) FROM (SELECT 1 FROM postlane.deliveries d
                               WHERE d.subscription_id = @subscription_id AND d.held_at IS NOT NULL AND coalesce(d.reason, '') = @reason::text LIMIT @max::integer) y))::bigint;

-- name: ConsoleHeld :many
--
-- The streams that a dead letter holds, in the order of their subscriptions.
SELECT d.subscription_id, d.seq, d.event_id, d.event_type, d.asset, d.attempts, d.created_at, coalesce(d.held_at, d.created_at)::timestamptz AS since,
       coalesce(d.reason, '')::text AS reason, s.tenant, s.url, s.state,
       (SELECT count(*) FROM (SELECT 1 FROM postlane.deliveries e
                              WHERE e.subscription_id = d.subscription_id AND coalesce(e.asset, '') = coalesce(d.asset, '') LIMIT 1001) x)::bigint AS depth
FROM (SELECT h.* FROM postlane.deliveries h
      WHERE h.held_at IS NOT NULL AND (h.subscription_id, h.seq) > (@after_id::bigint, @after_seq::bigint)
        AND (@tenant::text = '' OR h.tenant = @tenant::text) AND (@subscription_id::bigint = 0 OR h.subscription_id = @subscription_id::bigint)
      ORDER BY h.subscription_id, h.seq LIMIT @max::integer) d
JOIN postlane.subscriptions s ON s.id = d.subscription_id AND s.deleted_at IS NULL
ORDER BY d.subscription_id, d.seq;

-- name: ConsoleRetrying :many
--
-- The streams whose next attempt is furthest away: those that have failed most often.
SELECT d.subscription_id, d.seq, d.event_id, d.event_type, d.asset, d.attempts, d.created_at, coalesce(d.due_at, d.created_at)::timestamptz AS due,
       s.tenant, s.url, s.state,
       (SELECT count(*) FROM (SELECT 1 FROM postlane.deliveries e
                              WHERE e.subscription_id = d.subscription_id AND coalesce(e.asset, '') = coalesce(d.asset, '') LIMIT 1001) x)::bigint AS depth
FROM (SELECT h.* FROM postlane.deliveries h
      WHERE h.due_at IS NOT NULL
        AND (@tenant::text = '' OR h.tenant = @tenant::text) AND (@subscription_id::bigint = 0 OR h.subscription_id = @subscription_id::bigint)
      ORDER BY h.due_at DESC LIMIT @max::integer) d
JOIN postlane.subscriptions s ON s.id = d.subscription_id AND s.deleted_at IS NULL
ORDER BY d.due_at DESC;

-- name: ConsoleFlying :many
--
-- What has been in flight for longest.
SELECT l.subscription_id, l.seq, l.event_id, l.asset, l.attempt, l.claimed_at, l.claimant,
       coalesce((SELECT d.event_type FROM postlane.deliveries d WHERE d.subscription_id = l.subscription_id AND d.seq = l.seq LIMIT 1), '')::text AS event_type,
       s.tenant, s.url, s.state,
       (SELECT count(*) FROM (SELECT 1 FROM postlane.deliveries e
                              WHERE e.subscription_id = l.subscription_id AND coalesce(e.asset, '') = coalesce(l.asset, '') LIMIT 1001) x)::bigint AS depth
FROM (SELECT h.* FROM postlane.leases h
      WHERE h.claimed_at < now() - make_interval(secs => @at_least_seconds::double precision)
        AND (@tenant::text = '' OR h.tenant = @tenant::text) AND (@subscription_id::bigint = 0 OR h.subscription_id = @subscription_id::bigint)
      ORDER BY h.claimed_at LIMIT @max::integer) l
JOIN postlane.subscriptions s ON s.id = l.subscription_id
ORDER BY l.claimed_at;

-- name: ConsoleLastAttempts :many
--
-- The last attempt of each of the deliveries that are named and had one. A probe each.
WITH named AS (
    SELECT unnest(@subscription_ids::bigint[]) AS subscription_id, unnest(@seqs::bigint[]) AS seq
)
SELECT n.subscription_id::bigint AS subscription_id, n.seq::bigint AS seq, a.outcome, a.status, a.started_at
FROM named n
CROSS JOIN LATERAL (
    SELECT t.outcome, t.status, t.started_at FROM postlane.attempts t
    WHERE t.subscription_id = n.subscription_id AND t.seq = n.seq ORDER BY t.fence DESC LIMIT 1
) a;
