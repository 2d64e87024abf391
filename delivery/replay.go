package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// ReplayRequest chooses events of a subscription's tenant that are to be sent to it once
// more: those of a time range that its event types match, whether they were delivered,
// died, or were written before the subscription was made.
type ReplayRequest struct {
	// Subscription is who gets them. Required.
	Subscription SubscriptionID

	// ID names the replay within its subscription: letters, digits, "-" and "_", up to
	// MaxID. The same id again is the same replay and goes on where that stopped. It is
	// known for as long as Retention.Events keeps events, from the first call on.
	// Required by Replay.
	ID string

	// Since and Until are the range: events written at Since or later, and before Until.
	// Since is required. Default of Until: the time of the first call.
	Since, Until time.Time

	// EventTypes are patterns, as in Settings, of those that are wanted.
	// Default: all that the subscription's own match.
	EventTypes []string

	// Asset, where OfAsset is set, is the only one that is wanted; "" are the events
	// without one.
	Asset   string
	OfAsset bool

	// By is who asks, for the record. Default: "", a program that did not say.
	By string

	// For is how long Replay goes on before it answers. Default: 0, until all is done.
	For time.Duration
}

// ReplayCount is how many events a replay would be about.
type ReplayCount struct {
	// Events were counted; More says that there may be more than could be counted in
	// time.
	Events int64
	More   bool
	// KeptSince is when the oldest event was written that is still kept, where that is
	// after the beginning of the range: what was written before it cannot be replayed.
	// Else zero; and zero if no event at all is kept.
	KeptSince time.Time
}

// Replayed is how far a replay has got.
type Replayed struct {
	// Deliveries counts those that it has made so far, and Now those of this call.
	Deliveries, Now int64
	// Done says that there are no more. Else the same request goes on.
	Done bool
}

const (
	// replayBatch is how many events, of all tenants, one transaction looks at, at most.
	replayBatch = 1000
	// replaySlack is how far the order of events may be from that of their times: by how
	// much the server's clock may have been wrong.
	replaySlack = time.Hour
	// replayNearby is how many events in a row may be out of that order by more.
	replayNearby = 1000
	// replayCountTime bounds counting.
	replayCountTime = 3 * time.Second
)

// CountReplay counts what a replay would be about, and changes nothing.
func (s *Store) CountReplay(ctx context.Context, r ReplayRequest) (c ReplayCount, err error) {
	sub, err := s.replayable(ctx, &r)
	if err != nil {
		return c, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("delivery: count a replay to %v: %w", r.Subscription, err)
		}
	}()
	switch oldest, err := queries.ReplayOldestEvent(ctx, s.pool); {
	case errors.Is(err, pgx.ErrNoRows):
		return c, nil
	case err != nil:
		return c, err
	case oldest.After(r.Since):
		c.KeptSince = oldest
	}
	first, beyond, err := r.span(ctx, s.pool)
	if err != nil {
		return c, err
	}
	arg := dbgen.ReplayBatchParams{
		SubscriptionID: int64(sub.ID), Tenant: sub.Tenant, DryRun: true, Since: r.Since, Until: optional(r.Until), EventTypes: r.patterns(), Asset: r.asset(),
		After: first - 1, Last: beyond - 1, Max: 10 * replayBatchOf(sub),
	}
	for began := time.Now(); ; {
		var met *dbgen.ReplayBatchRow
		err := s.transaction(ctx, func(tx pgx.Tx) (err error) {
			if err = queries.LogSettings(ctx, tx, readTimeoutMS); err == nil {
				met, err = replayNext(ctx, tx, &arg)
			}
			return err
		})
		if err = tooBroad(ctx, err); errors.Is(err, ErrTooBroad) {
			c.More = true
			return c, nil
		}
		if err != nil {
			return c, err
		}
		c.Events += met.Events
		arg.After = met.Reached
		if met.Finished {
			return c, nil
		}
		if time.Since(began) > replayCountTime {
			c.More = true
			return c, nil
		}
	}
}

// Replay makes each chosen event a new delivery of the subscription: with a new place in
// its stream behind all that waits there, in the order in which the events were written,
// and with the event's own id as webhook-id, so that a receiver that deduplicates by it
// takes what it has not seen.
//
// It works in small transactions, each of which notes how far it got: what is done stays
// done when it is interrupted, and the same request goes on behind it, never again from
// the start. Any number of calls may go on with one replay at once. The answer is right
// also with an error.
//
// ErrNotFound if the subscription is deleted, also in the middle; ErrReplayConflict if the
// id stands for another range of it. To a paused or disabled subscription what is replayed
// waits. Events that retention has removed are not replayed: see ReplayCount.
//
// An id protects from a second replay until it is forgotten: by a pass of retention
// (Prune) that comes Retention.Events or later after the first call; never, where events
// are kept for ever. After that the same request begins anew, with those events of its
// range that are still kept. Without an Until that is a range which ends then.
//
// It finds what was committed when the first call began. What commits later may not be
// replayed, but reaches the subscription as any other event does; unless it was enqueued
// before the subscription was made. To give a new one all of the past, wait for the
// transactions that were open when it was made.
//
// Events that were written while the database server's clock was wrong by more than an
// hour may be missed, and around more than a thousand of those in a row others too.
func (s *Store) Replay(ctx context.Context, r ReplayRequest) (did Replayed, err error) {
	if r.ID == "" || len(r.ID) > MaxID || !isToken(r.ID) {
		return did, &InvalidError{Index: -1, Field: "ID", Problem: fmt.Sprintf("names the replay: 1 to %d letters, digits, - and _", MaxID)}
	}
	sub, err := s.replayable(ctx, &r)
	if err != nil {
		return did, err
	}
	batch := replayBatchOf(sub)
	for began := time.Now(); !did.Done; {
		err := tooBroad(ctx, s.replayBatch(ctx, sub, &r, batch, &did))
		if errors.Is(err, ErrTooBroad) && batch > 1 {
			batch = max(batch/10, 1)
			continue // whatever the time: the next call would begin as large
		}
		if err != nil {
			return did, fmt.Errorf("delivery: replay %s to %v: %w", r.ID, sub.ID, err)
		}
		if r.For > 0 && time.Since(began) > r.For {
			break
		}
	}
	return did, nil
}

// replayBatchOf is how many events a batch of a replay begins with: fewer where payloads
// are looked into.
func replayBatchOf(sub *Subscription) int32 {
	if len(sub.Conditions) > 0 {
		return replayBatch / 10
	}
	return replayBatch
}

// replayBatch does the next batch of a replay, which begins with the first.
func (s *Store) replayBatch(ctx context.Context, sub *Subscription, r *ReplayRequest, max int32, did *Replayed) error {
	var at *dbgen.PostlaneReplays
	var met *dbgen.ReplayBatchRow
	err := s.transaction(ctx, func(tx pgx.Tx) (err error) {
		if err := queries.LogSettings(ctx, tx, readTimeoutMS); err != nil {
			return err
		}
		if at, err = s.replayAt(ctx, tx, sub, r); err != nil || at.FinishedAt != nil {
			return err
		}
		if err := queries.ReplayEventsKept(ctx, tx); err != nil {
			return err
		}
		met, err = replayNext(ctx, tx, &dbgen.ReplayBatchParams{
			SubscriptionID: int64(sub.ID), Tenant: sub.Tenant, ID: r.ID, Since: at.Since, Until: &at.Until, EventTypes: at.EventTypes, Asset: at.Asset,
			After: at.DoneSeq, Last: at.LastSeq, Max: max,
		})
		if err != nil {
			return err
		}
		return queries.SubscriptionNotify(ctx, tx)
	})
	switch {
	case err != nil:
		return err
	case met == nil:
		did.Deliveries, did.Done = at.Deliveries, true
	default:
		did.Deliveries, did.Done = at.Deliveries+met.Events, met.Finished
		did.Now += met.Events
	}
	return nil
}

// replayNext is ReplayBatch, and an error where the subscription was deleted meanwhile:
// what is left of the replay is not done.
func replayNext(ctx context.Context, tx pgx.Tx, p *dbgen.ReplayBatchParams) (*dbgen.ReplayBatchRow, error) {
	met, err := queries.ReplayBatch(ctx, tx, p)
	if err == nil && met.Deleted {
		return nil, fmt.Errorf("%w: the subscription was deleted meanwhile", ErrNotFound)
	}
	return met, err
}

// replayAt locks a replay, and remembers it before if it is new.
func (s *Store) replayAt(ctx context.Context, tx pgx.Tx, sub *Subscription, r *ReplayRequest) (*dbgen.PostlaneReplays, error) {
	name := dbgen.ReplayLockParams{SubscriptionID: int64(sub.ID), ID: r.ID}
	at, err := queries.ReplayLock(ctx, tx, &name)
	if errors.Is(err, pgx.ErrNoRows) {
		first, beyond, err := r.span(ctx, tx)
		if err != nil {
			return nil, err
		}
		err = queries.ReplayBegin(ctx, tx, &dbgen.ReplayBeginParams{
			SubscriptionID: int64(sub.ID), Tenant: sub.Tenant, ID: r.ID, Since: r.Since, Until: optional(r.Until), EventTypes: r.patterns(), Asset: r.asset(),
			RequestedBy: text(r.By), DoneSeq: first - 1, LastSeq: beyond - 1,
		})
		if err != nil {
			return nil, err
		}
		at, err = queries.ReplayLock(ctx, tx, &name)
		if err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	asset := r.asset()
	if !at.Since.Equal(r.Since) || !r.Until.IsZero() && !at.Until.Equal(r.Until) || !slices.Equal(at.EventTypes, r.patterns()) ||
		(asset == nil) != (at.Asset == nil) || asset != nil && *asset != *at.Asset {
		return nil, ErrReplayConflict
	}
	return at, nil
}

// replayable checks a request and returns its subscription.
func (s *Store) replayable(ctx context.Context, r *ReplayRequest) (*Subscription, error) {
	invalid := func(field, problem string) error { return &InvalidError{Index: -1, Field: field, Problem: problem} }
	// As the database has them.
	r.Since, r.Until = r.Since.Truncate(time.Microsecond), r.Until.Truncate(time.Microsecond)
	switch {
	case r.Since.IsZero():
		return nil, invalid("Since", "is missing; say from when on events are to be replayed")
	case !r.Until.IsZero() && !r.Since.Before(r.Until):
		return nil, invalid("Until", "is not after the beginning of the range")
	case !isText(r.Asset) || len(r.Asset) > MaxAsset:
		return nil, invalid("Asset", fmt.Sprintf("is not UTF-8 without NUL, of up to %d bytes", MaxAsset))
	}
	for _, p := range r.EventTypes {
		if problem := patternProblem(p); problem != "" {
			return nil, invalid("EventTypes", problem)
		}
	}
	return s.Subscription(ctx, r.Subscription)
}

// span is between which seqs, the second not included, the range can have events.
func (r *ReplayRequest) span(ctx context.Context, db dbgen.DBTX) (first, beyond int64, err error) {
	since := r.Since.Add(-replaySlack)
	if first, err = queries.ReplayPosition(ctx, db, &dbgen.ReplayPositionParams{At: &since, Nearby: replayNearby}); err != nil {
		return 0, 0, err
	}
	var until *time.Time
	if !r.Until.IsZero() {
		until = optional(r.Until.Add(replaySlack))
	}
	beyond, err = queries.ReplayPosition(ctx, db, &dbgen.ReplayPositionParams{At: until, Late: true, Nearby: replayNearby})
	return first, beyond, err
}

// patterns are the wanted event types, never nil.
func (r *ReplayRequest) patterns() []string { return append([]string{}, r.EventTypes...) }

// asset is the only wanted one, nil for any.
func (r *ReplayRequest) asset() *string {
	if !r.OfAsset {
		return nil
	}
	return &r.Asset
}

// ReplayOrigin is the replay that made a delivery.
type ReplayOrigin struct {
	ID string
	// By is who asked for it, "" where nobody said.
	By string
}

// ReplayOf returns the replay that made a delivery; the zero value if none did.
func (s *Store) ReplayOf(ctx context.Context, sub SubscriptionID, id ID) (ReplayOrigin, error) {
	row, err := queries.ReplayOf(ctx, s.pool, &dbgen.ReplayOfParams{SubscriptionID: int64(sub), Seq: int64(id)})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ReplayOrigin{}, nil
	case err != nil:
		return ReplayOrigin{}, fmt.Errorf("delivery: the replay of %v: %w", id, err)
	}
	return ReplayOrigin{ID: row.ReplayID, By: row.RequestedBy}, nil
}
