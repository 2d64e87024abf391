package bench

import (
	"cmp"
	"context"
	"fmt"

	"github.com/postlane-go/postlane/delivery"
)

// bulk is how many rows a statement of a bulk load writes.
const bulk = 100_000

// addSubscriptions writes subscriptions in bulk, without secrets: nothing can be sent to
// them.
func (d *database) addSubscriptions(ctx context.Context, n int, state delivery.State) ([]int64, error) {
	rows, err := d.pool.Query(ctx, `INSERT INTO postlane.subscriptions (tenant, url, state)
		SELECT 'bench-' || i, 'http://127.0.0.1/' || i, $2 FROM generate_series(1, $1) i RETURNING id`, n, string(state))
	if err != nil {
		return nil, err
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// addEvents writes n events of one tenant in bulk, which addDeliveries takes up.
func (d *database) addEvents(ctx context.Context, n int) error {
	if err := d.takeSeqs(ctx, n); err != nil {
		return err
	}
	for from := 0; from < n; from += bulk {
		_, err := d.pool.Exec(ctx, `INSERT INTO postlane.events (seq, tenant, id, type, content_type, payload)
			SELECT $5 + i, $3, 'evt_' || lpad(i::text, 12, '0'), 'asset.updated', 'application/json', $4 FROM generate_series($1::bigint, $2::bigint - 1) i`,
			from, min(from+bulk, n), tenant(0), body, d.bulkSeq)
		if err != nil {
			return err
		}
	}
	return nil
}

// takeSeqs takes n numbers for the rows of a bulk load.
func (d *database) takeSeqs(ctx context.Context, n int) error {
	return d.pool.QueryRow(ctx, "SELECT setval('postlane.delivery_seq', nextval('postlane.delivery_seq') + $1) - $1", n).Scan(&d.bulkSeq)
}

// addDeliveries writes a delivery for each of n events, as an Enqueue of each alone leaves
// it. Its asset is not its event's: so one load of events serves several shapes.
func (d *database) addDeliveries(ctx context.Context, n int, subscriptions []int64, s shape) error {
	owner, due := cmp.Or(s.owner, "i % s"), cmp.Or(s.due, "NULL::timestamptz")
	sql := fmt.Sprintf(`INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, ready, due_at, attempts)
		SELECT ($1::bigint[])[1 + %s], $7 + i, $2, 'evt_' || lpad(i::text, 12, '0'), 'asset.updated', %s,
		       CASE WHEN %s IS NULL THEN $7 + i END, %s, CASE WHEN %s IS NULL THEN 0 ELSE 1 END
		FROM (SELECT i, $3::bigint AS n, $4::bigint AS s FROM generate_series($5::bigint, $6::bigint - 1) i) r`,
		owner, s.asset, due, due, due)
	for from := 0; from < n; from += bulk {
		if _, err := d.pool.Exec(ctx, sql, subscriptions, tenant(0), n, s.subscriptions, from, min(from+bulk, n), d.bulkSeq); err != nil {
			return err
		}
	}
	return nil
}

// shape is what a backlog looks like. Its expressions are SQL of a delivery's number i,
// from 0, the number n of all, and s, the active subscriptions.
type shape struct {
	name string
	// subscriptions are active; paused ones come after them.
	subscriptions, paused int
	// owner is the number of the subscription. Default: they take turns.
	owner string
	asset string
	// due is the time that a delivery waits for after a failed attempt, or NULL.
	// Default: NULL.
	due string
}
