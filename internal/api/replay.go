package api

import (
	"context"
	"net/http"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/view"
)

// replayTime is for how long a request goes on with a replay.
const replayTime = 5 * time.Second

type replayEvents struct {
	BySubscription
	Body struct {
		DryRun     bool             `json:"dry_run,omitempty" doc:"Count only"`
		ID         string           `json:"id,omitempty" maxLength:"128" doc:"Names the replay within its subscription, chosen by you: letters, digits, - and _. The same id again is the same replay and goes on where it stopped. It is known for as long as events are kept, from the first request on. Required unless dry_run"`
		Since      time.Time        `json:"since" doc:"Events written at or after this time"`
		Until      time.Time        `json:"until,omitzero" doc:"Events written before this time; absent: the time of the first request"`
		EventTypes []string         `json:"event_types,omitempty" maxItems:"100" doc:"Patterns of those that are wanted; absent: all that the subscription's own match"`
		Asset      Optional[string] `json:"asset,omitzero" maxLength:"512" doc:"Exactly this asset; null: those without one. Absent: any"`
	}
}

func (a *api) replayRoutes() {
	register(a, operation(http.MethodPost, "/v1/subscriptions/{id}/replay", "replay-events", tagSubscriptions, "Send events of a time range once more",
		"Makes each event of the range that the subscription's event types match a new delivery, whatever became of it before, behind what waits in its stream; of a stream in the order in which the events were written. The receiver sees the same webhook-id with a new postlane-stream-seq. Events that are no longer kept are not replayed: see kept_since of a dry run. "+
			"It works in small batches, each kept as soon as it is done. Send the same request again until done is true; a request that is repeated or broken off replays nothing twice."), a.replayEvents)
}

func (a *api) replayEvents(ctx context.Context, in *replayEvents) (*answer[view.Replayed], error) {
	sub, err := a.subscription(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	b := &in.Body
	r := delivery.ReplayRequest{
		Subscription: sub.ID, ID: b.ID, Since: b.Since, Until: b.Until, EventTypes: b.EventTypes, Asset: b.Asset.Value, OfAsset: b.Asset.Set,
		By: caller(ctx).Label(), For: replayTime,
	}
	if b.DryRun {
		c, err := a.Store.CountReplay(ctx, r)
		if err != nil {
			return nil, err
		}
		out := view.NewReplayCount(b.ID, c)
		note(ctx).Detail = "dry run: " + out.Detail()
		return &answer[view.Replayed]{out}, nil
	}
	did, err := a.Store.Replay(ctx, r)
	out := view.NewReplayed(b.ID, did)
	note(ctx).Detail = out.Detail()
	if err != nil {
		if did.Now == 0 {
			return nil, err
		}
		// What is done is done, and has to be told.
		a.Logger.Error("a replay stopped early", "subscription", sub.ID, "replay", b.ID, "deliveries", did.Deliveries, "error", err)
	}
	return &answer[view.Replayed]{out}, nil
}
