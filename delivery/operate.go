package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// Revive returns a dead letter to pending, with its attempts at 0, in the place of its
// stream that its seq gives it. ErrNotDead if it is in another state; ErrNotFound if the
// subscription has no such delivery, or its event is no longer kept.
func (s *Store) Revive(ctx context.Context, sub SubscriptionID, id ID) error {
	return s.ReviveBy(ctx, sub, id, "")
}

// ReviveBy is Revive on behalf of somebody, whose name is kept with it (Revivals).
func (s *Store) ReviveBy(ctx context.Context, sub SubscriptionID, id ID, who string) error {
	return s.act(ctx, "revive", sub, id, func(tx pgx.Tx, d *dbgen.DeliveryLockRow) error {
		if err := s.revive(ctx, tx, sub, id, d); err != nil {
			return err
		}
		return queries.RevivalRecord(ctx, tx, &dbgen.RevivalRecordParams{SubscriptionID: int64(sub), Seq: int64(id), RevivedBy: text(who)})
	})
}

func (s *Store) revive(ctx context.Context, tx pgx.Tx, sub SubscriptionID, id ID, d *dbgen.DeliveryLockRow) error {
	if d != nil {
		if d.HeldAt == nil {
			return ErrNotDead
		}
		_, err := queries.DeliveryReviveHeld(ctx, tx, &dbgen.DeliveryReviveHeldParams{SubscriptionID: int64(sub), Seq: int64(id)})
		return err
	}
	_, err := queries.DeliveryReviveDead(ctx, tx, &dbgen.DeliveryReviveDeadParams{SubscriptionID: int64(sub), Seq: int64(id)})
	return s.whyNotDead(ctx, tx, sub, id, err)
}

// Discard gives a delivery up, with a reason for people: a dead letter, or a pending
// delivery that stands in its stream's way. Its stream goes on. ErrInFlight while it
// is being sent; ErrNotDead if it is settled already.
func (s *Store) Discard(ctx context.Context, sub SubscriptionID, id ID, reason string) error {
	if reason == "" || !isText(reason) {
		return &InvalidError{Index: -1, Field: "reason", Problem: "is empty or not UTF-8 without NUL; say why, for whoever reads the log"}
	}
	return s.act(ctx, "discard", sub, id, func(tx pgx.Tx, d *dbgen.DeliveryLockRow) error {
		if d != nil {
			return s.remove(ctx, tx, d, "discarded", &reason)
		}
		_, err := queries.DeliveryDiscardDead(ctx, tx, &dbgen.DeliveryDiscardDeadParams{
			SubscriptionID: int64(sub), Seq: int64(id), Why: reason, Now: s.now(),
		})
		return s.whyNotDead(ctx, tx, sub, id, err)
	})
}

// ReleaseHeld lets a stream go on behind the dead letter that holds it. The letter stays
// dead and can still be revived. ErrNotHeld if it holds no stream.
func (s *Store) ReleaseHeld(ctx context.Context, sub SubscriptionID, id ID) error {
	return s.act(ctx, "release", sub, id, func(tx pgx.Tx, d *dbgen.DeliveryLockRow) error {
		if d == nil || d.HeldAt == nil {
			_, err := queries.LogState(ctx, tx, &dbgen.LogStateParams{SubscriptionID: int64(sub), Seq: int64(id)})
			if errors.Is(err, pgx.ErrNoRows) {
				return ErrNotFound
			}
			return cmp.Or(err, ErrNotHeld)
		}
		return s.remove(ctx, tx, d, "dead", nil)
	})
}

// act runs an operator's action on a delivery of a subscription that is not deleted. It
// holds the lock of its row, if it occupies its stream.
func (s *Store) act(ctx context.Context, what string, sub SubscriptionID, id ID, f func(pgx.Tx, *dbgen.DeliveryLockRow) error) error {
	err := s.transaction(ctx, func(tx pgx.Tx) error {
		if err := queries.PlanSettings(ctx, tx); err != nil {
			return err
		}
		if _, err := queries.SubscriptionGet(ctx, tx, int64(sub)); err != nil {
			if errors.Is(err, pgx.ErrNoRows) {
				return ErrNotFound
			}
			return err
		}
		d, err := lock(ctx, tx, sub, id)
		if err != nil {
			return err
		}
		return f(tx, d)
	})
	if err != nil {
		return fmt.Errorf("delivery: %s %v of %v: %w", what, id, sub, err)
	}
	return nil
}

// lock locks a delivery that occupies its stream, and the stream's first: so a claim
// does not take the stream, to send the one after the other. nil if it occupies none.
func lock(ctx context.Context, tx pgx.Tx, sub SubscriptionID, id ID) (*dbgen.DeliveryLockRow, error) {
	for {
		asset, err := queries.DeliveryAsset(ctx, tx, &dbgen.DeliveryAssetParams{SubscriptionID: int64(sub), Seq: int64(id)})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, nil //nolint:nilnil // it occupies no stream
		}
		if err != nil {
			return nil, err
		}
		_, err = queries.StreamLock(ctx, tx, &dbgen.StreamLockParams{SubscriptionID: int64(sub), Asset: asset})
		if errors.Is(err, pgx.ErrNoRows) {
			continue // what was first was settled while this waited
		}
		if err != nil {
			return nil, err
		}
		d, err := queries.DeliveryLock(ctx, tx, &dbgen.DeliveryLockParams{SubscriptionID: int64(sub), Seq: int64(id)})
		if !errors.Is(err, pgx.ErrNoRows) {
			return d, err
		}
	}
}

// remove takes a locked delivery out of its stream, unless it is in flight.
func (s *Store) remove(ctx context.Context, tx pgx.Tx, d *dbgen.DeliveryLockRow, state string, why *string) error {
	asset := ""
	if d.Asset != nil {
		asset = *d.Asset
	}
	inFlight, err := queries.DeliveryInFlight(ctx, tx, &dbgen.DeliveryInFlightParams{SubscriptionID: d.SubscriptionID, Asset: asset, Seq: d.Seq})
	if err != nil {
		return err
	}
	if inFlight {
		return ErrInFlight
	}
	_, err = queries.DeliveryRemove(ctx, tx, &dbgen.DeliveryRemoveParams{
		SubscriptionID: d.SubscriptionID, Seq: d.Seq, State: state, Why: why, Now: s.now(),
	})
	if err != nil {
		return err
	}
	_, err = queries.StreamWake(ctx, tx, &dbgen.StreamWakeParams{SubscriptionIds: []int64{d.SubscriptionID}, Assets: []string{asset}})
	return err
}

// whyNotDead turns "no row" into what it means for a delivery that is not in its stream.
func (s *Store) whyNotDead(ctx context.Context, tx pgx.Tx, sub SubscriptionID, id ID, err error) error {
	if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	state, err := queries.LogState(ctx, tx, &dbgen.LogStateParams{SubscriptionID: int64(sub), Seq: int64(id)})
	if errors.Is(err, pgx.ErrNoRows) || state == "dead" {
		return ErrNotFound
	}
	if err != nil {
		return err
	}
	return ErrNotDead
}
