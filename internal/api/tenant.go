package api

import (
	"context"

	"github.com/postlane-go/postlane/delivery"
)

// tenantOf is the tenant that a request is about: the caller's own, or the one that an
// operator names. A tenant's key may name its own and no other.
func tenantOf(ctx context.Context, named, location string) (string, error) {
	who := caller(ctx)
	switch {
	case who.Operator() && named == "":
		return "", invalid.at(location, "is missing: an operator says whose it is")
	case who.Operator(), named == who.Tenant:
		return named, nil
	case named == "":
		return who.Tenant, nil
	}
	return "", missing()
}

// filterTenant is the tenant whose things are listed; "" for all, to an operator.
func filterTenant(ctx context.Context, named string) (string, error) {
	if caller(ctx).Operator() {
		return named, nil
	}
	return tenantOf(ctx, named, "query.tenant")
}

// subscription is the one of an id, if the caller may see it. What it may not see is
// answered as what is not there.
func (a *api) subscription(ctx context.Context, id string) (*delivery.Subscription, error) {
	parsed, err := delivery.ParseSubscriptionID(id)
	if err != nil {
		return nil, missing()
	}
	sub, err := a.Store.Subscription(ctx, parsed)
	if err != nil {
		return nil, err
	}
	if who := caller(ctx); !who.Operator() && sub.Tenant != who.Tenant {
		return nil, missing()
	}
	note(ctx).Tenant = sub.Tenant
	return sub, nil
}

// delivery is a delivery's id within a subscription that the caller may see.
func (a *api) delivery(ctx context.Context, sub, id string) (*delivery.Subscription, delivery.ID, error) {
	s, err := a.subscription(ctx, sub)
	if err != nil {
		return nil, 0, err
	}
	parsed, err := delivery.ParseID(id)
	if err != nil {
		return nil, 0, missing()
	}
	return s, parsed, nil
}
