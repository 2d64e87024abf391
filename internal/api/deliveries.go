package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/view"
)

// ByDelivery is the path of a delivery.
type ByDelivery struct {
	BySubscription
	DeliveryID string `path:"delivery_id" doc:"The delivery" example:"dlv_1042"`
}

type listDeliveries struct {
	BySubscription
	Page
	State     []string  `query:"state" enum:"pending,delivering,delivered,dead,discarded" doc:"Any of these, with commas between"`
	EventType string    `query:"event_type" maxLength:"128" doc:"Exactly this type"`
	Asset     string    `query:"asset" maxLength:"512" doc:"Exactly this asset; there and empty: those without one"`
	Since     time.Time `query:"since" doc:"Written at or after this time"`
	Until     time.Time `query:"until" doc:"Written before this time"`
	Order     string    `query:"order" enum:"newest,oldest" default:"newest" doc:"Which come first"`

	ofAsset bool
}

// Resolve finds out whether the asset is there and empty.
func (in *listDeliveries) Resolve(ctx huma.Context) []error {
	u := ctx.URL()
	in.ofAsset = u.Query().Has("asset")
	return nil
}

type discardDelivery struct {
	ByDelivery
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"1000" doc:"Why, for whoever reads the log"`
	}
}

func (a *api) deliveryRoutes() {
	const base = "/v1/subscriptions/{id}/deliveries"
	registerList(a, operation(http.MethodGet, base, "list-deliveries", tagDeliveries, "List a subscription's deliveries",
		"The log: what is pending, in flight and settled, without payloads. A delivery is listed from the commit of its event on: what an application wrote in a transaction that is still open is not there yet, and takes its place by its id when it is, behind the cursor of whoever has read past it. No request takes long, however large the log: where a filter leaves few of many, a page may hold fewer than limit, even none, and still have a next_cursor. Go on with it; null is the end."), (*api).listDeliveries)
	register(a, operation(http.MethodGet, base+"/{delivery_id}", "get-delivery", tagDeliveries, "Get a delivery with its attempts",
		"The attempts made after a manual retry say so, with when and who. An attempt's answer is the beginning of what the endpoint said, as text. No payload."), a.getDelivery)
	register(a, operation(http.MethodPost, base+"/{delivery_id}/retry", "retry-delivery", tagDeliveries, "Retry a dead letter",
		"Returns it to pending with its attempts at 0, in its place in its stream. Who pressed and when is kept with it."), a.retryDelivery)
	register(a, operation(http.MethodPost, base+"/{delivery_id}/discard", "discard-delivery", tagDeliveries, "Give a delivery up",
		"A dead letter, or a pending one that stands in its stream's way. Its stream goes on."), a.discardDelivery)
	register(a, operation(http.MethodPost, base+"/{delivery_id}/release", "release-delivery", tagDeliveries, "Release the stream that a dead letter holds",
		"Its stream goes on behind it. The letter stays dead and can still be retried."), a.releaseDelivery)
}

func (a *api) listDeliveries(ctx context.Context, in *listDeliveries) (*answer[view.List[view.Delivery]], error) {
	sub, err := a.subscription(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	f := delivery.Filter{EventType: in.EventType, Asset: in.Asset, OfAsset: in.ofAsset, Since: in.Since, Until: in.Until, Within: a.Search}
	slices.Sort(in.State)
	for _, name := range in.State {
		state, err := delivery.ParseDeliveryState(name)
		if err != nil {
			return nil, err
		}
		f.States = append(f.States, state)
	}
	name := fmt.Sprintf("deliveries\x00%v\x00%s\x00%q\x00%v%q\x00%s\x00%s\x00%s", sub.ID, strings.Join(in.State, ","), in.EventType, in.ofAsset, in.Asset,
		in.Since.UTC().Format(time.RFC3339Nano), in.Until.UTC().Format(time.RFC3339Nano), in.Order)
	position, err := a.cursors.read(name, in.Cursor)
	if err != nil {
		return nil, err
	}
	var from delivery.ID
	if position != "" {
		if from, err = delivery.ParseID(position); err != nil {
			return nil, err
		}
	}
	read := a.Store.Deliveries
	if in.Order == "oldest" {
		read = a.Store.DeliveriesOldest
	}
	page, err := read(ctx, sub.ID, f, from, in.Limit+1)
	if err != nil {
		return nil, err
	}
	list := listed(a, name, in.Limit, page.Deliveries,
		func(d delivery.Delivery) view.Delivery { return view.NewDelivery(sub.ID, &d) },
		func(d delivery.Delivery) string { return d.ID.String() })
	if len(page.Deliveries) <= in.Limit && page.Next != 0 { // not all was looked at
		next := a.cursors.make(name, page.Next.String())
		list.Body.NextCursor = &next
	}
	return list, nil
}

func (a *api) getDelivery(ctx context.Context, in *ByDelivery) (*answer[view.DeliveryWithAttempts], error) {
	sub, id, err := a.delivery(ctx, in.ID, in.DeliveryID)
	if err != nil {
		return nil, err
	}
	d, err := a.Store.Delivery(ctx, sub.ID, id)
	if err != nil {
		return nil, err
	}
	attempts, err := a.Store.Attempts(ctx, sub.ID, id)
	if err != nil {
		return nil, err
	}
	revivals, err := a.Store.Revivals(ctx, sub.ID, id)
	if err != nil {
		return nil, err
	}
	origin, err := a.Store.ReplayOf(ctx, sub.ID, id)
	if err != nil {
		return nil, err
	}
	return &answer[view.DeliveryWithAttempts]{view.NewDeliveryWithAttempts(sub.ID, &d, attempts, revivals, origin)}, nil
}

// shown is a delivery after something was done to it.
func (a *api) shown(ctx context.Context, sub *delivery.Subscription, id delivery.ID) (*answer[view.Delivery], error) {
	d, err := a.Store.Delivery(ctx, sub.ID, id)
	if err != nil {
		return nil, err
	}
	return &answer[view.Delivery]{view.NewDelivery(sub.ID, &d)}, nil
}

func (a *api) retryDelivery(ctx context.Context, in *ByDelivery) (*answer[view.Delivery], error) {
	sub, id, err := a.delivery(ctx, in.ID, in.DeliveryID)
	if err != nil {
		return nil, err
	}
	if err := a.Store.ReviveBy(ctx, sub.ID, id, caller(ctx).Label()); err != nil {
		return nil, err
	}
	return a.shown(ctx, sub, id)
}

func (a *api) discardDelivery(ctx context.Context, in *discardDelivery) (*answer[view.Delivery], error) {
	sub, id, err := a.delivery(ctx, in.ID, in.DeliveryID)
	if err != nil {
		return nil, err
	}
	note(ctx).Detail = in.Body.Reason
	if err := a.Store.Discard(ctx, sub.ID, id, in.Body.Reason); err != nil {
		return nil, err
	}
	return a.shown(ctx, sub, id)
}

func (a *api) releaseDelivery(ctx context.Context, in *ByDelivery) (*answer[view.Delivery], error) {
	sub, id, err := a.delivery(ctx, in.ID, in.DeliveryID)
	if err != nil {
		return nil, err
	}
	if err := a.Store.ReleaseHeld(ctx, sub.ID, id); err != nil {
		return nil, err
	}
	return a.shown(ctx, sub, id)
}
