-- name: DeliveryIdle :one
--
-- Whether nothing is in flight and nothing could be claimed: no lease, and of the active
-- subscriptions nothing whose time has come, and nothing ready but what waits longer than
-- wait_ms for a place in its rate limit. Looks at what is due of the others too, and makes
-- one probe for each active subscription, so it is for tests and for stopping, and not for
-- every poll.
SELECT ((SELECT count(*) = 0 FROM (SELECT 1 FROM postlane.leases l LIMIT 1) f)
   AND (SELECT count(*) = 0
        FROM (SELECT 1 FROM postlane.deliveries d
              WHERE d.due_at <= coalesce(sqlc.narg('now')::timestamptz, now())
                AND (SELECT s.state = 'active' AND s.deleted_at IS NULL FROM postlane.subscriptions s WHERE s.id = d.subscription_id LIMIT 1)
              ORDER BY d.due_at LIMIT 1) t)
   AND (SELECT count(*) = 0
        FROM (SELECT 1 FROM postlane.subscriptions s
              WHERE s.state = 'active' AND s.deleted_at IS NULL
                AND (NOT s.failing
                     OR coalesce((SELECT b.probe_at FROM postlane.breakers b WHERE b.subscription_id = s.id LIMIT 1)
                                 <= coalesce(sqlc.narg('now')::timestamptz, now()), true))
                AND (s.rate_limit IS NULL
                     OR (SELECT p.next_at FROM postlane.paces p WHERE p.subscription_id = s.id LIMIT 1)
                        <= coalesce(sqlc.narg('now')::timestamptz, now()) + (@wait_ms::bigint) * interval '1 millisecond')
                AND (SELECT d.seq FROM postlane.deliveries d
                     WHERE d.subscription_id = s.id AND d.ready IS NOT NULL
                     ORDER BY d.subscription_id, d.ready LIMIT 1) IS NOT NULL
              LIMIT 1) r))::boolean AS idle;
