package console

import (
	"time"

	"github.com/google/uuid"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/view"
)

type replayingView struct {
	Sub *delivery.Subscription
	// What was chosen, as a form has it.
	ID, Since, Until, EventTypes string
	// Count is what it would be about; nil where nothing was chosen yet.
	Count *delivery.ReplayCount
	// Did is what it did; nil where it is only asked for.
	Did     *delivery.Replayed
	Stopped bool
}

// replayingEvents asks for a range, shows how many events a replay of it would be about,
// and asks once more.
func (v *visit) replayingEvents() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	body := replayingView{Sub: sub, Since: v.query("since"), Until: v.query("until"), EventTypes: v.query("event_types")}
	if body.Since == "" {
		body.Since = time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04:05")
	} else {
		r, err := body.request(v)
		if err != nil {
			return err
		}
		count, err := v.Store.CountReplay(v.ctx, r)
		if err != nil {
			return err
		}
		// The end of the range is that of the count, and a second press of the button is
		// the same replay.
		body.Count, body.ID = &count, uuid.NewString()
		if body.Until == "" {
			body.Until = time.Now().UTC().Add(time.Second).Format("2006-01-02T15:04:05")
		}
	}
	return v.page("replaying", "endpoints", "Replay events", body)
}

// replayEvents goes on with a replay for a while and tells how far it got.
func (v *visit) replayEvents() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	body := replayingView{Sub: sub, ID: v.form("id"), Since: v.form("since"), Until: v.form("until"), EventTypes: v.form("event_types")}
	r, err := body.request(v)
	if err != nil {
		return err
	}
	did, err := v.Store.Replay(v.ctx, r)
	out := view.NewReplayed(r.ID, did)
	v.note(out.Detail())
	if err != nil && did.Now == 0 {
		return err
	}
	if err != nil { // what is done is done, and has to be told
		v.Logger.Error("a replay stopped early", "subscription", sub.ID, "replay", r.ID, "deliveries", did.Deliveries, "error", err)
		body.Stopped = true
	}
	body.Did = &did
	return v.page("replaying", "endpoints", "Replay events", body)
}

// request is what was chosen.
func (b *replayingView) request(v *visit) (r delivery.ReplayRequest, err error) {
	r = delivery.ReplayRequest{Subscription: b.Sub.ID, ID: b.ID, EventTypes: words(b.EventTypes), By: v.who.Label(), For: retryTime}
	if b.Since, r.Since, err = readTime(b.Since); err != nil {
		return r, err
	}
	b.Until, r.Until, err = readTime(b.Until)
	return r, err
}
