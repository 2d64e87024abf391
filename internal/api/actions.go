package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/postlane-go/postlane/internal/view"
)

// defaultOverlap is how long a rotated secret goes on signing if nobody says.
const defaultOverlap = 24 * time.Hour

type pauseSubscription struct {
	BySubscription
	Body *struct {
		Reason string `json:"reason,omitempty" maxLength:"1000" doc:"Why, for people"`
	} `required:"false"`
}

type rotateSecret struct {
	BySubscription
	Body *struct {
		Overlap *int `json:"overlap_seconds,omitempty" minimum:"0" maximum:"604800" doc:"How long the secrets before it go on signing too: a day if absent, at most 7 days; 0: not at all"`
	} `required:"false"`
}

func (a *api) actionRoutes() {
	const base = "/v1/subscriptions/{id}"
	register(a, operation(http.MethodPost, base+"/pause", "pause-subscription", tagSubscriptions, "Pause a subscription",
		"When this answers, no request to the endpoint starts any more; open ones go on. What is pending stays, in order."), a.pauseSubscription)
	register(a, operation(http.MethodPost, base+"/enable", "enable-subscription", tagSubscriptions, "Enable a paused or disabled subscription",
		"What is pending goes out in order; the failures that disabled it are forgotten."), a.enableSubscription)
	register(a, operation(http.MethodPost, base+"/rotate-secret", "rotate-secret", tagSubscriptions, "Replace the signing secret",
		"The answer holds the new secret. The ones before go on signing beside it for the overlap, so that the receiver can change over without missing an event. With v1a the key is replaced too."), a.rotateSecret)
	register(a, operation(http.MethodPost, base+"/test", "test-subscription", tagSubscriptions, "Send a test request",
		"Sends one signed request of the type postlane.test now, past the queue, whatever the subscription's state, and answers with what came of it. Nothing is stored and no failure is counted."), a.testSubscription)
}

func (a *api) pauseSubscription(ctx context.Context, in *pauseSubscription) (*answer[view.Subscription], error) {
	sub, err := a.subscription(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
		note(ctx).Detail = reason
	}
	if sub, err = a.Store.Pause(ctx, sub.ID, reason); err != nil {
		return nil, err
	}
	return &answer[view.Subscription]{view.NewSubscription(sub)}, nil
}

func (a *api) enableSubscription(ctx context.Context, in *BySubscription) (*answer[view.Subscription], error) {
	sub, err := a.subscription(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if sub, err = a.Store.Enable(ctx, sub.ID); err != nil {
		return nil, err
	}
	return &answer[view.Subscription]{view.NewSubscription(sub)}, nil
}

func (a *api) rotateSecret(ctx context.Context, in *rotateSecret) (*answer[view.RotatedSecret], error) {
	sub, err := a.subscription(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	overlap := defaultOverlap
	if in.Body != nil && in.Body.Overlap != nil {
		overlap = time.Duration(*in.Body.Overlap) * time.Second
	}
	note(ctx).Detail = fmt.Sprintf("overlap %v", overlap)
	secret, err := a.Store.RotateSecret(ctx, sub.ID, overlap)
	if err != nil {
		return nil, err
	}
	if sub, err = a.Store.Subscription(ctx, sub.ID); err != nil {
		return nil, err
	}
	return &answer[view.RotatedSecret]{view.RotatedSecret{
		ID: sub.ID.String(), Secret: secret.Reveal(), Overlap: int(overlap.Seconds()), PublicKey: view.NewSubscription(sub).PublicKey,
		Signing: view.SigningExplained,
	}}, nil
}

func (a *api) testSubscription(ctx context.Context, in *BySubscription) (*answer[view.Test], error) {
	sub, err := a.subscription(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	result, err := a.Store.SendTest(ctx, a.Sender, sub.ID)
	if err != nil {
		return nil, err
	}
	note(ctx).Detail = cmp.Or(string(result.Outcome), "unknown")
	return &answer[view.Test]{view.NewTest(&result)}, nil
}
