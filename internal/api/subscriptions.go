package api

import (
	"context"
	"net/http"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/view"
)

// Page is what every list takes.
type Page struct {
	Limit  int    `query:"limit" default:"50" minimum:"1" maximum:"500" doc:"Most to list"`
	Cursor string `query:"cursor" maxLength:"2000" doc:"Where to go on: next_cursor of the page before"`
}

// BySubscription is the path of what is a subscription's.
type BySubscription struct {
	ID string `path:"id" doc:"The subscription" example:"sub_4182937465019283746"`
}

type answer[T any] struct{ Body T }

type createdSubscription struct {
	Location string `header:"Location" doc:"Where it is"`
	Body     view.SubscriptionWithSecret
}

type newSubscription struct {
	Body struct {
		Settings
		URL    string `json:"url" minLength:"1" maxLength:"2048" doc:"The endpoint: https, at a public address" example:"https://example.com/hooks"`
		Tenant string `json:"tenant,omitempty" doc:"Whose events it gets; needed with an operator's key"`
	}
}

type changeSubscription struct {
	BySubscription
	Body Settings
}

type listSubscriptions struct {
	Page
	Tenant string `query:"tenant" doc:"Those of this tenant; for an operator, who sees all without it"`
}

func (a *api) subscriptionRoutes() {
	const base = "/v1/subscriptions"
	create := operation(http.MethodPost, base, "create-subscription", tagSubscriptions, "Create a subscription",
		"Events that are written from now on reach it. The answer holds its signing secret, which no other answer but that of a rotation does, and explains how to verify what the endpoint receives.")
	create.DefaultStatus = http.StatusCreated
	register(a, create, a.createSubscription)
	registerList(a, operation(http.MethodGet, base, "list-subscriptions", tagSubscriptions, "List subscriptions", "In the order of their ids."), (*api).listSubscriptions)
	register(a, operation(http.MethodGet, base+"/{id}", "get-subscription", tagSubscriptions, "Get a subscription", ""), a.getSubscription)
	register(a, operation(http.MethodPatch, base+"/{id}", "update-subscription", tagSubscriptions, "Change a subscription",
		"What is absent stays as it is; null and an empty value are two other things. When this answers, no request with the old settings starts any more."), a.updateSubscription)
	remove := operation(http.MethodDelete, base+"/{id}", "delete-subscription", tagSubscriptions, "Delete a subscription",
		"When this answers, no request to the endpoint starts any more. What is pending is discarded; the log stays until it is pruned, but is no longer shown.")
	remove.DefaultStatus = http.StatusNoContent
	register(a, remove, a.deleteSubscription)
}

func (a *api) createSubscription(ctx context.Context, in *newSubscription) (*createdSubscription, error) {
	note(ctx).Detail = in.Body.names()
	tenant, err := tenantOf(ctx, in.Body.Tenant, "body.tenant")
	if err != nil {
		return nil, err
	}
	note(ctx).Tenant = tenant
	settings := delivery.Settings{URL: in.Body.URL}
	if err := in.Body.apply(&settings); err != nil {
		return nil, err
	}
	sub, secret, err := a.Store.CreateSubscription(ctx, tenant, settings)
	if err != nil {
		return nil, err
	}
	note(ctx).Target = sub.ID.String()
	return &createdSubscription{
		Location: "/v1/subscriptions/" + sub.ID.String(),
		Body:     view.SubscriptionWithSecret{Subscription: view.NewSubscription(sub), Secret: secret.Reveal(), Signing: view.SigningExplained},
	}, nil
}

func (a *api) listSubscriptions(ctx context.Context, in *listSubscriptions) (*answer[view.List[view.Subscription]], error) {
	tenant, err := filterTenant(ctx, in.Tenant)
	if err != nil {
		return nil, err
	}
	name := "subscriptions\x00" + tenant
	position, err := a.cursors.read(name, in.Cursor)
	if err != nil {
		return nil, err
	}
	var after delivery.SubscriptionID
	if position != "" {
		if after, err = delivery.ParseSubscriptionID(position); err != nil {
			return nil, err
		}
	}
	list, err := a.Store.Subscriptions(ctx, tenant, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return listed(a, name, in.Limit, list, view.NewSubscription, func(s *delivery.Subscription) string { return s.ID.String() }), nil
}

// listed is the answer of a list of which one more was read than is shown, so that the
// last page says that it is.
func listed[T, V any](a *api, name string, limit int, list []T, show func(T) V, position func(T) string) *answer[view.List[V]] {
	next := ""
	if len(list) > limit {
		list = list[:limit]
		next = a.cursors.make(name, position(list[limit-1]))
	}
	views := make([]V, len(list))
	for i := range list {
		views[i] = show(list[i])
	}
	return &answer[view.List[V]]{view.NewList(views, next)}
}

func (a *api) getSubscription(ctx context.Context, in *BySubscription) (*answer[view.Subscription], error) {
	sub, err := a.subscription(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &answer[view.Subscription]{view.NewSubscription(sub)}, nil
}

func (a *api) updateSubscription(ctx context.Context, in *changeSubscription) (*answer[view.Subscription], error) {
	note(ctx).Detail = in.Body.names()
	sub, err := a.subscription(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if in.Body.names() == "" { // nothing to change, so nothing is written
		return &answer[view.Subscription]{view.NewSubscription(sub)}, nil
	}
	sub, err = a.Store.UpdateSubscription(ctx, sub.ID, in.Body.apply)
	if err != nil {
		return nil, err
	}
	return &answer[view.Subscription]{view.NewSubscription(sub)}, nil
}

func (a *api) deleteSubscription(ctx context.Context, in *BySubscription) (*struct{}, error) {
	sub, err := a.subscription(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return nil, a.Store.DeleteSubscription(ctx, sub.ID)
}
