package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// Revival is a return of a dead letter to its stream.
type Revival struct {
	At time.Time
	// By is who asked for it, "" where nobody said.
	By string
	// afterFence is that of the last attempt before it.
	afterFence int64
}

// Revivals returns when a delivery was revived, first to last.
func (s *Store) Revivals(ctx context.Context, sub SubscriptionID, id ID) ([]Revival, error) {
	rows, err := queries.RevivalList(ctx, s.pool, &dbgen.RevivalListParams{SubscriptionID: int64(sub), Seq: int64(id)})
	if err != nil {
		return nil, fmt.Errorf("delivery: revivals of %v: %w", id, err)
	}
	list := make([]Revival, len(rows))
	for i, r := range rows {
		list[i] = Revival{At: r.RevivedAt, By: r.RevivedBy, afterFence: r.AfterFence}
	}
	return list, nil
}

// RevivalOf returns the revival that an attempt came after: the last one before it; nil
// for an attempt of the delivery's first life.
func RevivalOf(a *Attempt, revivals []Revival) *Revival {
	for i := len(revivals) - 1; i >= 0; i-- {
		if a.Fence > revivals[i].afterFence {
			return &revivals[i]
		}
	}
	return nil
}

// DeadLetters chooses dead letters of a subscription, those that hold their streams
// included. The zero value chooses all. The first fields are those of Filter.
type DeadLetters struct {
	EventType    string
	Asset        string
	OfAsset      bool
	Since, Until time.Time
	// Reason: exactly this one, where OfReason is set; "" are those without one.
	Reason   string
	OfReason bool
}

// CountDead returns how many dead letters are in a range, after the given one (0: from
// the first). ErrTooBroad if it cannot be told in time.
func (s *Store) CountDead(ctx context.Context, sub SubscriptionID, d DeadLetters, after ID) (n int64, err error) {
	err = s.bounded(ctx, func(b *pgx.Batch) {
		b.Queue(dbgen.RevivalCount, int64(sub), int64(after), d.EventType, d.OfAsset, d.Asset, d.OfReason, d.Reason, optional(d.Since), optional(d.Until)).
			QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
	})
	if err != nil {
		return 0, fmt.Errorf("delivery: count the dead letters of %v: %w", sub, err)
	}
	return n, nil
}

// Revived is what a ReviveBatch did.
type Revived struct {
	// Revived and Skipped count: skipped are those whose event is no longer kept, and
	// those that somebody else revived or discarded at the same moment.
	Revived, Skipped int
	// Last is where the next batch begins; More says that there may be one.
	Last ID
	More bool
}

// ReviveBatch revives up to max dead letters of a range, in the order of their streams,
// after the given one (0: from the first), on behalf of somebody. It is one transaction:
// who revives many calls it again and again and can stop after each. What dies again
// meanwhile lies before Last and is not met twice.
func (s *Store) ReviveBatch(ctx context.Context, sub SubscriptionID, d DeadLetters, after ID, max int, who string) (Revived, error) {
	r := Revived{Last: after}
	err := s.boundedWrite(ctx, func(b *pgx.Batch) {
		b.Queue(dbgen.RevivalBatch, int64(sub), int64(after), d.EventType, d.OfAsset, d.Asset, d.OfReason, d.Reason, optional(d.Since), optional(d.Until), int32(max), text(who)).
			Query(func(rows pgx.Rows) error {
				for rows.Next() {
					var revived bool
					if err := rows.Scan(&r.Last, &revived); err != nil {
						return err
					}
					if revived {
						r.Revived++
					} else {
						r.Skipped++
					}
				}
				return rows.Err()
			})
		b.Queue(dbgen.SubscriptionNotify)
	})
	if err != nil {
		return Revived{Last: after}, fmt.Errorf("delivery: revive dead letters of %v: %w", sub, err)
	}
	r.More = r.Revived+r.Skipped == max
	return r, nil
}
