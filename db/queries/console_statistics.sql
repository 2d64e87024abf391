-- Statistics of attempts: see 0040_console.sql. Times are those of recording, by which
-- a BRIN index finds them; all of these run under StatisticsSettings.
--
-- Histograms have 32 buckets, whose 31 bounds in milliseconds the caller gives.

-- name: StatisticsSettings :exec
--
-- Not LogSettings: a BRIN index has bitmap scans only.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true),
       set_config('enable_seqscan', 'off', true),
       set_config('jit', 'off', true),
       set_config('statement_timeout', (@timeout_ms::integer)::text, true);

-- name: StatisticsNext :one
--
-- The next minute to count, if it is over, and how far behind now its end is. Its row
-- is locked: of several servers one counts. What is older than a day is left out.
SELECT greatest(p.at, date_trunc('minute', now() - interval '1 day'))::timestamptz AS at,
       floor(extract(epoch FROM now() - greatest(p.at, date_trunc('minute', now() - interval '1 day')) - interval '1 minute') * 1000)::bigint AS behind_ms
FROM postlane.statistics_progress p
WHERE p.at + interval '1 minute' + make_interval(secs => @grace_seconds::double precision) <= now()
FOR UPDATE SKIP LOCKED;

-- name: StatisticsCount :one
--
-- Counts the attempts of a minute, one in every so many (by the hash of their seq), and says how
-- many it read. Finds each one's delivery for its type and age: 16,000 attempts, which
-- is 270 a second, take some 100 ms, and sampling keeps it there.
WITH given AS MATERIALIZED (
    SELECT @at::timestamptz AS at, @every::bigint AS every, @bounds::bigint[] AS bounds
),
made AS MATERIALIZED (
    SELECT a.subscription_id, a.tenant, a.outcome, coalesce(a.status, -1) AS status, a.outcome = 'delivered' AS ok,
           CASE WHEN a.status IS NOT NULL THEN width_bucket(a.duration_ms::bigint, g.bounds) END AS answer,
           CASE WHEN a.outcome = 'delivered'
                THEN width_bucket(floor(extract(epoch FROM a.recorded_at - t.created_at) * 1000)::bigint, g.bounds) END AS delay,
           coalesce(t.event_type, (SELECT d.event_type FROM postlane.deliveries d
                                   WHERE d.subscription_id = a.subscription_id AND d.seq = a.seq LIMIT 1), '') AS event_type
    FROM given g
    JOIN postlane.attempts a ON a.recorded_at >= g.at AND a.recorded_at < g.at + interval '1 minute' AND (hashint8(a.seq) & 2147483647) % g.every = 0
    LEFT JOIN LATERAL (
        SELECT s.event_type, s.created_at FROM postlane.settled s
        WHERE s.subscription_id = a.subscription_id AND s.seq = a.seq LIMIT 1
    ) t ON true
),
minutes AS (
    INSERT INTO postlane.statistics_minutes (tenant, at, delivered, failed, answer, delay)
    SELECT coalesce(m.tenant, ''), g.at, count(*) FILTER (WHERE m.ok) * g.every, count(*) FILTER (WHERE NOT m.ok) * g.every,
           ARRAY[count(*) FILTER (WHERE m.answer = 0), count(*) FILTER (WHERE m.answer = 1), count(*) FILTER (WHERE m.answer = 2), count(*) FILTER (WHERE m.answer = 3),
                 count(*) FILTER (WHERE m.answer = 4), count(*) FILTER (WHERE m.answer = 5), count(*) FILTER (WHERE m.answer = 6), count(*) FILTER (WHERE m.answer = 7),
                 count(*) FILTER (WHERE m.answer = 8), count(*) FILTER (WHERE m.answer = 9), count(*) FILTER (WHERE m.answer = 10), count(*) FILTER (WHERE m.answer = 11),
                 count(*) FILTER (WHERE m.answer = 12), count(*) FILTER (WHERE m.answer = 13), count(*) FILTER (WHERE m.answer = 14), count(*) FILTER (WHERE m.answer = 15),
                 count(*) FILTER (WHERE m.answer = 16), count(*) FILTER (WHERE m.answer = 17), count(*) FILTER (WHERE m.answer = 18), count(*) FILTER (WHERE m.answer = 19),
                 count(*) FILTER (WHERE m.answer = 20), count(*) FILTER (WHERE m.answer = 21), count(*) FILTER (WHERE m.answer = 22), count(*) FILTER (WHERE m.answer = 23),
                 count(*) FILTER (WHERE m.answer = 24), count(*) FILTER (WHERE m.answer = 25), count(*) FILTER (WHERE m.answer = 26), count(*) FILTER (WHERE m.answer = 27),
                 count(*) FILTER (WHERE m.answer = 28), count(*) FILTER (WHERE m.answer = 29), count(*) FILTER (WHERE m.answer = 30), count(*) FILTER (WHERE m.answer = 31)]::bigint[],
           ARRAY[count(*) FILTER (WHERE m.delay = 0), count(*) FILTER (WHERE m.delay = 1), count(*) FILTER (WHERE m.delay = 2), count(*) FILTER (WHERE m.delay = 3),
                 count(*) FILTER (WHERE m.delay = 4), count(*) FILTER (WHERE m.delay = 5), count(*) FILTER (WHERE m.delay = 6), count(*) FILTER (WHERE m.delay = 7),
                 count(*) FILTER (WHERE m.delay = 8), count(*) FILTER (WHERE m.delay = 9), count(*) FILTER (WHERE m.delay = 10), count(*) FILTER (WHERE m.delay = 11),
                 count(*) FILTER (WHERE m.delay = 12), count(*) FILTER (WHERE m.delay = 13), count(*) FILTER (WHERE m.delay = 14), count(*) FILTER (WHERE m.delay = 15),
                 count(*) FILTER (WHERE m.delay = 16), count(*) FILTER (WHERE m.delay = 17), count(*) FILTER (WHERE m.delay = 18), count(*) FILTER (WHERE m.delay = 19),
                 count(*) FILTER (WHERE m.delay = 20), count(*) FILTER (WHERE m.delay = 21), count(*) FILTER (WHERE m.delay = 22), count(*) FILTER (WHERE m.delay = 23),
                 count(*) FILTER (WHERE m.delay = 24), count(*) FILTER (WHERE m.delay = 25), count(*) FILTER (WHERE m.delay = 26), count(*) FILTER (WHERE m.delay = 27),
                 count(*) FILTER (WHERE m.delay = 28), count(*) FILTER (WHERE m.delay = 29), count(*) FILTER (WHERE m.delay = 30), count(*) FILTER (WHERE m.delay = 31)]::bigint[]
    FROM made m CROSS JOIN given g
    GROUP BY GROUPING SETS ((m.tenant, g.at, g.every), (g.at, g.every))
    ON CONFLICT (tenant, at) DO NOTHING
),
spans AS (
    INSERT INTO postlane.statistics_spans AS x (subscription_id, at, delivered, failed, answer)
    SELECT m.subscription_id, date_bin('5 minutes', g.at, '2000-01-01Z'),
           count(*) FILTER (WHERE m.ok) * g.every, count(*) FILTER (WHERE NOT m.ok) * g.every,
           ARRAY[count(*) FILTER (WHERE m.answer = 0), count(*) FILTER (WHERE m.answer = 1), count(*) FILTER (WHERE m.answer = 2), count(*) FILTER (WHERE m.answer = 3),
                 count(*) FILTER (WHERE m.answer = 4), count(*) FILTER (WHERE m.answer = 5), count(*) FILTER (WHERE m.answer = 6), count(*) FILTER (WHERE m.answer = 7),
                 count(*) FILTER (WHERE m.answer = 8), count(*) FILTER (WHERE m.answer = 9), count(*) FILTER (WHERE m.answer = 10), count(*) FILTER (WHERE m.answer = 11),
                 count(*) FILTER (WHERE m.answer = 12), count(*) FILTER (WHERE m.answer = 13), count(*) FILTER (WHERE m.answer = 14), count(*) FILTER (WHERE m.answer = 15),
                 count(*) FILTER (WHERE m.answer = 16), count(*) FILTER (WHERE m.answer = 17), count(*) FILTER (WHERE m.answer = 18), count(*) FILTER (WHERE m.answer = 19),
                 count(*) FILTER (WHERE m.answer = 20), count(*) FILTER (WHERE m.answer = 21), count(*) FILTER (WHERE m.answer = 22), count(*) FILTER (WHERE m.answer = 23),
                 count(*) FILTER (WHERE m.answer = 24), count(*) FILTER (WHERE m.answer = 25), count(*) FILTER (WHERE m.answer = 26), count(*) FILTER (WHERE m.answer = 27),
                 count(*) FILTER (WHERE m.answer = 28), count(*) FILTER (WHERE m.answer = 29), count(*) FILTER (WHERE m.answer = 30), count(*) FILTER (WHERE m.answer = 31)]::bigint[]
    FROM made m CROSS JOIN given g
    GROUP BY m.subscription_id, g.at, g.every
    ON CONFLICT (subscription_id, at) DO UPDATE
    SET delivered = x.delivered + excluded.delivered, failed = x.failed + excluded.failed,
        answer = postlane.statistics_add(x.answer, excluded.answer)
),
kinds AS (
    INSERT INTO postlane.statistics_kinds AS x (subscription_id, at, event_type, outcome, status, attempts)
    SELECT m.subscription_id, date_trunc('hour', g.at, 'UTC'), m.event_type, m.outcome, m.status, count(*) * g.every
    FROM made m CROSS JOIN given g
    GROUP BY m.subscription_id, g.at, g.every, m.event_type, m.outcome, m.status
    ON CONFLICT (subscription_id, at, event_type, outcome, status) DO UPDATE SET attempts = x.attempts + excluded.attempts
),
moved AS (
    UPDATE postlane.statistics_progress p SET at = g.at + interval '1 minute' FROM given g
)
SELECT count(*) FROM made;

-- name: StatisticsSummarize :one
--
-- Lets the BRIN index know the block ranges that were filled since the last time, and
-- says how many. Autovacuum does so too when it comes by; until then each reader reads
-- them all: counting a minute among 1,000,000 attempts that were just loaded took 670 ms,
-- and 90 ms after this. Reads new ranges alone. For the owner of the table.
SELECT brin_summarize_new_values('postlane.attempts_recorded'::regclass)::integer;

-- name: StatisticsForget :exec
--
-- Removes what is older than a day and an hour.
WITH minutes AS (
    DELETE FROM postlane.statistics_minutes x WHERE x.at < now() - interval '25 hours'
),
spans AS (
    DELETE FROM postlane.statistics_spans y WHERE y.at < now() - interval '25 hours'
)
DELETE FROM postlane.statistics_kinds z WHERE z.at < now() - interval '25 hours';

-- name: StatisticsNow :one
--
-- The database's time, and up to where the attempts are counted.
SELECT now()::timestamptz AS now, p.at FROM postlane.statistics_progress p;

-- name: StatisticsMinutes :many
SELECT m.at, m.delivered, m.failed, m.answer, m.delay
FROM postlane.statistics_minutes m WHERE m.tenant = @tenant AND m.at >= @since ORDER BY m.at;

-- name: StatisticsSpans :many
SELECT s.at, s.delivered, s.failed, s.answer
FROM postlane.statistics_spans s WHERE s.subscription_id = @subscription_id AND s.at >= @since ORDER BY s.at;

-- name: StatisticsHours :many
--
-- Of several subscriptions, by hour.
SELECT s.subscription_id, date_trunc('hour', s.at, 'UTC')::timestamptz AS at, sum(s.delivered)::bigint AS delivered, sum(s.failed)::bigint AS failed
FROM postlane.statistics_spans s
WHERE s.subscription_id = ANY (@subscription_ids::bigint[]) AND s.at >= @since
GROUP BY s.subscription_id, date_trunc('hour', s.at, 'UTC');

-- name: StatisticsKinds :many
SELECT k.event_type, k.outcome, k.status, sum(k.attempts)::bigint AS attempts
FROM postlane.statistics_kinds k
WHERE k.subscription_id = @subscription_id AND k.at >= @since
GROUP BY k.event_type, k.outcome, k.status;

-- name: StatisticsFresh :many
--
-- What was recorded since the last minute that is counted, from the first max attempts:
-- of a tenant, or ('') of all, or of the subscriptions that are named.
SELECT date_trunc('minute', m.recorded_at)::timestamptz AS at, m.subscription_id::bigint AS subscription_id, m.event_type::text AS event_type,
       m.outcome::text AS outcome, m.status::integer AS status, m.answer::integer AS answer, m.delay::integer AS delay, count(*) AS attempts
FROM (SELECT a.recorded_at, a.outcome, coalesce(a.status, -1) AS status,
             CASE WHEN @by_subscription::boolean THEN a.subscription_id ELSE 0 END AS subscription_id,
             CASE WHEN a.status IS NOT NULL THEN width_bucket(a.duration_ms::bigint, @bounds::bigint[]) ELSE -1 END AS answer,
             CASE WHEN a.outcome = 'delivered' AND t.created_at IS NOT NULL
                  THEN width_bucket(floor(extract(epoch FROM a.recorded_at - t.created_at) * 1000)::bigint, @bounds::bigint[]) ELSE -1 END AS delay,
             CASE WHEN @by_subscription::boolean
                  THEN coalesce(t.event_type, (SELECT d.event_type FROM postlane.deliveries d
                                               WHERE d.subscription_id = a.subscription_id AND d.seq = a.seq LIMIT 1), '')
                  ELSE '' END AS event_type
      FROM (SELECT q.recorded_at, q.subscription_id, q.seq, q.outcome, q.status, q.duration_ms
            FROM postlane.attempts q
            WHERE q.recorded_at >= @since::timestamptz
              AND (@tenant::text = '' OR q.tenant = @tenant::text)
              AND (NOT @by_subscription::boolean OR q.subscription_id = ANY (@subscription_ids::bigint[]))
            LIMIT @max::integer) a
      LEFT JOIN LATERAL (
          SELECT s.event_type, s.created_at FROM postlane.settled s
          WHERE s.subscription_id = a.subscription_id AND s.seq = a.seq LIMIT 1
      ) t ON true) m
GROUP BY 1, 2, 3, 4, 5, 6, 7;

-- name: StatisticsClaimants :many
--
-- Who has recorded attempts since a time, from the first max of them.
SELECT a.claimant, count(*) AS attempts, floor(extract(epoch FROM now() - max(a.recorded_at)) * 1000)::bigint AS ago_ms
FROM (SELECT q.claimant, q.recorded_at FROM postlane.attempts q WHERE q.recorded_at >= @since::timestamptz LIMIT @max::integer) a
GROUP BY a.claimant ORDER BY a.claimant LIMIT 200;
