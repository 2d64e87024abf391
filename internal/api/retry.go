package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/view"
)

const (
	// retryBatch is how many dead letters one transaction revives, and retryTime for how
	// long a request goes on with more of them.
	retryBatch = 200
	retryTime  = 5 * time.Second
)

type retryDeliveries struct {
	BySubscription
	Body struct {
		DryRun    bool             `json:"dry_run,omitempty" doc:"Count only"`
		EventType string           `json:"event_type,omitempty" maxLength:"128" doc:"Exactly this type"`
		Asset     Optional[string] `json:"asset,omitzero" maxLength:"512" doc:"Exactly this asset; null: those without one. Absent: any"`
		Reason    Optional[string] `json:"reason,omitzero" maxLength:"10000" doc:"Died of exactly this, as the deliveries say it; null: without a reason. Absent: any"`
		Since     time.Time        `json:"since,omitzero" doc:"Written at or after this time"`
		Until     time.Time        `json:"until,omitzero" doc:"Written before this time"`
		Max       int              `json:"max,omitempty" default:"10000" minimum:"1" maximum:"100000" doc:"Most to retry in this request"`
		Cursor    string           `json:"cursor,omitempty" maxLength:"2000" doc:"Where to go on: next_cursor of the request before, with the same range"`
	}
}

func (a *api) retryRoutes() {
	register(a, operation(http.MethodPost, "/v1/subscriptions/{id}/deliveries/retry", "retry-deliveries", tagDeliveries, "Retry a range of dead letters",
		"Counts them first; with dry_run that is all. Then it works in small batches, in the order of the streams, each kept as soon as it is done: a request that is broken off has retried what it has. Where it stops before the end next_cursor is where the next request goes on."), a.retryDeliveries)
}

func (a *api) retryDeliveries(ctx context.Context, in *retryDeliveries) (*answer[view.RetriedRange], error) {
	sub, err := a.subscription(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	b := &in.Body
	letters := delivery.DeadLetters{EventType: b.EventType, OfAsset: b.Asset.Set, Asset: b.Asset.Value, OfReason: b.Reason.Set, Reason: b.Reason.Value, Since: b.Since, Until: b.Until}
	name := fmt.Sprintf("retry\x00%v\x00%#v", sub.ID, letters)
	position, err := a.cursors.read(name, b.Cursor)
	if err != nil {
		return nil, badCursor.at("body.cursor", "is not one that this range gave")
	}
	var after delivery.ID
	if position != "" {
		if after, err = delivery.ParseID(position); err != nil {
			return nil, err
		}
	}
	out := view.RetriedRange{DryRun: b.DryRun}
	if out.Matched, err = a.Store.CountDead(ctx, sub.ID, letters, after); err != nil {
		return nil, err
	}
	if b.DryRun {
		note(ctx).Detail = fmt.Sprintf("dry run: %d match", out.Matched)
		return &answer[view.RetriedRange]{out}, nil
	}
	for began := time.Now(); ; {
		did, err := a.Store.ReviveBatch(ctx, sub.ID, letters, after, min(retryBatch, b.Max-out.Retried-out.Skipped), caller(ctx).Label())
		out.Retried += did.Revived
		out.Skipped += did.Skipped
		note(ctx).Detail = fmt.Sprintf("%d match, %d retried, %d skipped", out.Matched, out.Retried, out.Skipped)
		if err != nil {
			if out.Retried == 0 {
				return nil, err
			}
			// What is done is done, and has to be told.
			a.Logger.Error("retrying a range stopped early", "subscription", sub.ID, "retried", out.Retried, "error", err)
		}
		after = did.Last
		full := out.Retried+out.Skipped >= b.Max
		if err == nil && !did.More {
			break
		}
		if err != nil || full || time.Since(began) > retryTime {
			next := a.cursors.make(name, after.String())
			out.NextCursor = &next
			break
		}
	}
	return &answer[view.RetriedRange]{out}, nil
}
