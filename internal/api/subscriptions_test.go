package api_test

import (
	"testing"
)

func TestSubscriptionLife(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.subscribe(map[string]any{"event_types": []string{"invoice.*"}, "description": "books"})
	got := b.want(200, b.acme, "GET", path, nil).object(b)
	b.is.Equal(got["description"], "books")
	b.is.Equal(got["tenant"], "acme")
	b.is.Equal(len(b.data(b.want(200, b.acme, "GET", "/v1/subscriptions", nil))), 1)
	b.is.Equal(b.want(200, b.acme, "POST", path+"/pause", map[string]any{"reason": "moving"}).object(b)["state_reason"], "moving")
	b.is.Equal(b.want(200, b.acme, "POST", path+"/enable", nil).object(b)["state"], "active")
	b.want(204, b.acme, "DELETE", path, nil)
	b.want(404, b.acme, "GET", path, nil)
	b.is.Equal(len(b.data(b.want(200, b.acme, "GET", "/v1/subscriptions", nil))), 0)
}
