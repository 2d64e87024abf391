package delivery_test

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
)

func TestAThinSubscriptionIsSentWhichEventThereIsAndNoPayload(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/thin", func(set *delivery.Settings) { set.Thin = true })
	s.endpoint("/full")
	var events []delivery.Event
	for i, size := range []int{20, 0, 5000, 100_000} { // carried by a claim, empty, and read on their own
		e := named([]string{"e0", "e1", "e2", "e3"}[i], "a")
		e.ContentType, e.Payload = "text/plain", make([]byte, size)
		events = append(events, e)
	}
	events[3].Asset = ""
	s.enqueueEvents(events...)

	c := s.config()
	var mu sync.Mutex
	bodies := map[string]map[string][]byte{}
	c.Sender = sendFunc{c.Sender, func(send func() sender.Result, r sender.Request) sender.Result {
		mu.Lock()
		if bodies[r.URL+r.ContentType] == nil {
			bodies[r.URL+r.ContentType] = map[string][]byte{}
		}
		bodies[r.URL+r.ContentType][r.EventID] = r.Body
		mu.Unlock()
		return send()
	}}
	s.dispatch(c)
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 8))
	s.sound() // signed and in order, as any

	mu.Lock()
	defer mu.Unlock()
	s.is.Equal(len(bodies), 2)
	for _, e := range events {
		s.is.Equal(len(bodies[s.url+"/fulltext/plain"][e.ID]), len(e.Payload))
		var got delivery.Thin
		s.is.NoErr(json.Unmarshal(bodies[s.url+"/thinapplication/json"][e.ID], &got))
		at := one[time.Time](s.bundle, "SELECT created_at FROM postlane.events WHERE id = $1", e.ID)
		s.is.True(got.Time.Equal(at))
		s.is.Equal(got.Asset == nil, e.Asset == "")
		got.Time, got.Asset = time.Time{}, nil
		s.is.Equal(got, delivery.Thin{ID: e.ID, Type: e.Type, Path: "/v1/events/" + e.ID + "/payload"})
	}

	updated, err := s.store.UpdateSubscription(s.ctx, sub, func(set *delivery.Settings) error { s.is.True(set.Thin); set.Thin = false; return nil })
	s.is.NoErr(err)
	s.is.True(!updated.Thin)
}
