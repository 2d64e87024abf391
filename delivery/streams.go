package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// Stream is what waits for one (subscription, asset).
type Stream struct {
	Asset string
	// Head is the first delivery: nothing behind it starts before it is settled.
	Head Delivery
	// InFlight is for how long the head has been in flight; negative if it is not.
	InFlight time.Duration
	// Since is when the head was written, or, where it holds the stream, when it died.
	Since time.Time
	// Depth counts the deliveries in the stream, the head included, up to 1,000.
	Depth int
}

// Streams returns up to limit streams of a subscription that have something waiting, in
// the order of their assets, after the given one. The stream without an asset is the
// first: page on with a pointer to the last one's asset, and begin with nil.
func (s *Store) Streams(ctx context.Context, sub SubscriptionID, after *string, limit int) ([]Stream, error) {
	rows, err := queries.StreamList(ctx, s.pool, &dbgen.StreamListParams{SubscriptionID: int64(sub), AfterAsset: after, Max: int32(limit)})
	if err != nil {
		return nil, fmt.Errorf("delivery: list streams of %v: %w", sub, err)
	}
	streams := make([]Stream, len(rows))
	for i, r := range rows {
		head := newDelivery(&dbgen.LogListRow{
			Seq: r.Seq, EventID: r.EventID, EventType: r.EventType, Asset: r.Asset, CreatedAt: r.CreatedAt, DueAt: r.DueAt, HeldAt: r.HeldAt,
			Reason: r.Reason, Attempts: max(r.Attempts, r.Attempt), State: string(Pending),
		})
		switch {
		case head.Held:
			head.State = Dead
		case r.InFlightMs >= 0:
			head.State = Delivering
		}
		streams[i] = Stream{Asset: head.Asset, Head: head, InFlight: time.Duration(r.InFlightMs) * time.Millisecond, Depth: int(r.Depth), Since: r.CreatedAt}
		if r.HeldAt != nil {
			streams[i].Since = *r.HeldAt
		}
	}
	return streams, nil
}

// OldestDue returns for how long the longest waiting delivery that could be claimed has
// waited since its event was written; negative if none waits. What waits for its
// subscription's rate limit could be claimed once that has a place, and has waited since
// then.
func (s *Store) OldestDue(ctx context.Context) (time.Duration, error) {
	ms, err := queries.StreamOldestDue(ctx, s.pool, s.now())
	if err != nil {
		return 0, fmt.Errorf("delivery: oldest due: %w", err)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// discardDeleted discards up to limit deliveries of deleted subscriptions.
func (s *Store) discardDeleted(ctx context.Context, limit int) (discarded int64, err error) {
	err = s.pipeline(ctx, func(b *pgx.Batch) {
		b.Queue(dbgen.DeliveryDiscardDeleted, int32(limit), s.now()).QueryRow(func(row pgx.Row) error { return row.Scan(&discarded) })
	})
	if err != nil {
		return 0, fmt.Errorf("delivery: discard what deleted subscriptions left: %w", err)
	}
	return discarded, nil
}

// streamPosition is where wakeOrphans has got to.
type streamPosition struct {
	subscription int64
	asset        string
}

// wakeOrphans looks at the next limit streams and wakes those that nothing else would
// wake. It returns where to go on; the zero position begins again.
func (s *Store) wakeOrphans(ctx context.Context, from streamPosition, limit int) (next streamPosition, woken int64, err error) {
	var n int32
	err = s.pipeline(ctx, func(b *pgx.Batch) {
		b.Queue(dbgen.StreamWakeOrphans, from.subscription, from.asset, int32(limit)).
			QueryRow(func(row pgx.Row) error { return row.Scan(&next.subscription, &next.asset, &n, &woken) })
	})
	if err != nil {
		return from, 0, fmt.Errorf("delivery: look for orphaned streams: %w", err)
	}
	if int(n) < limit {
		next = streamPosition{}
	}
	return next, woken, nil
}
