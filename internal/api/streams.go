package api

import (
	"context"
	"net/http"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/view"
)

type listStreams struct {
	BySubscription
	Page
}

func (a *api) streamRoutes() {
	registerList(a, operation(http.MethodGet, "/v1/subscriptions/{id}/streams", "list-streams", tagStreams, "List what waits, stream by stream",
		"In the order of the assets, those without one first: what stands at the head, why it waits, since when, and how many stand in the stream (counted up to 1,000)."), (*api).listStreams)
}

func (a *api) listStreams(ctx context.Context, in *listStreams) (*answer[view.List[view.Stream]], error) {
	sub, err := a.subscription(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	name := "streams\x00" + sub.ID.String()
	position, err := a.cursors.read(name, in.Cursor)
	if err != nil {
		return nil, err
	}
	var after *string
	if position != "" {
		asset := position[1:] // the stream without an asset has none
		after = &asset
	}
	list, err := a.Store.Streams(ctx, sub.ID, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return listed(a, name, in.Limit, list,
		func(s delivery.Stream) view.Stream { return view.NewStream(sub, &s) },
		func(s delivery.Stream) string { return "/" + s.Asset }), nil
}
