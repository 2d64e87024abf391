package delivery_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery"
)

// list is the whole log of a subscription, newest first.
func (b *bundle) list(sub delivery.SubscriptionID, f delivery.Filter) []delivery.Delivery {
	b.t.Helper()
	page, err := b.store.Deliveries(b.ctx, sub, f, 0, 1000)
	b.is.NoErr(err)
	return page.Deliveries
}

func TestBC46_PagesOfOneMomentNeitherRepeatNorSkip(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	other := b.subscribe()
	var names []string
	for i := range 105 {
		names = append(names, []string{"", "a", "b"}[i%3])
	}
	want := ids(b.enqueue(names...))
	b.exec("UPDATE postlane.deliveries SET created_at = now()")
	for range 10 { // a part is settled, and is in another table
		b.settle(delivery.Succeeded, b.claim(10)...)
	}
	slices.Reverse(want)

	for name, f := range map[string]delivery.Filter{"all": {}, "of an asset": {OfAsset: true, Asset: "a"}, "without an asset": {OfAsset: true}} {
		var got []delivery.ID
		var before delivery.ID
		pages := 0
		for {
			page, err := b.store.Deliveries(b.ctx, sub, f, before, 10)
			b.is.NoErr(err)
			for _, d := range page.Deliveries {
				got = append(got, d.ID)
			}
			pages++
			if page.Next == 0 {
				break
			}
			before = page.Next
			if pages == 3 { // what happens meanwhile moves nothing
				b.enqueue("new")
				b.settle(delivery.Succeeded, b.claim(2)...)
			}
		}
		expected := want
		if f.OfAsset {
			expected = nil
			for _, d := range b.list(sub, delivery.Filter{}) {
				if d.Asset == f.Asset {
					expected = append(expected, d.ID)
				}
			}
			b.is.Equal(len(expected), 35)
		}
		if !slices.Equal(got, expected) {
			t.Errorf("%s: %v, not %v", name, got, expected)
		}
		want = nil
		for _, d := range b.list(sub, delivery.Filter{}) {
			want = append(want, d.ID)
		}
	}
	b.is.Equal(len(b.list(other, delivery.Filter{})), len(b.list(sub, delivery.Filter{})))
}

func TestBC50_FilterByStates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(onlyAttempt)
	id := ids(b.enqueue("delivering", "delivered", "dead", "discarded", "pending"))
	claims := b.claim(10)
	b.settle(delivery.Succeeded, of(claims, "delivered"))
	b.settle(delivery.Failed, of(claims, "dead"))
	b.settle(delivery.Released, of(claims, "discarded"), of(claims, "pending"))
	b.is.NoErr(b.store.Discard(b.ctx, sub, id[3], "x"))
	// A letter that holds its stream is dead as well.
	_, err := b.store.UpdateSubscription(b.ctx, sub, func(s *delivery.Settings) error { s.OnDead = delivery.Hold; return nil })
	b.is.NoErr(err)
	b.enqueue("held")
	claims = b.claim(10)
	b.settle(delivery.Failed, of(claims, "held"))
	b.settle(delivery.Released, of(claims, "pending"))
	b.is.Equal(b.counts(sub), "pending:1 delivering:1 delivered:1 dead:2 discarded:1 ")

	names := func(states ...delivery.DeliveryState) string {
		var found []string
		for _, d := range b.list(sub, delivery.Filter{States: states}) {
			found = append(found, d.Asset)
			byAsset := b.list(sub, delivery.Filter{States: states, OfAsset: true, Asset: d.Asset})
			b.is.Equal(len(byAsset), 1)
			b.is.Equal(byAsset[0], d)
			one, err := b.store.Delivery(b.ctx, sub, d.ID)
			b.is.NoErr(err)
			b.is.Equal(one, d)
		}
		return strings.Join(found, " ")
	}
	b.is.Equal(names(), "held pending discarded dead delivered delivering")
	for _, s := range delivery.DeliveryStates {
		b.is.Equal(names(s), map[delivery.DeliveryState]string{delivery.Dead: "held dead"}[s]+map[delivery.DeliveryState]string{
			delivery.Pending: "pending", delivery.Delivering: "delivering", delivery.Delivered: "delivered", delivery.Discarded: "discarded",
		}[s])
	}
	b.is.Equal(names(delivery.Delivered, delivery.Pending), "pending delivered")
	_, err = b.store.Deliveries(b.ctx, sub, delivery.Filter{States: []delivery.DeliveryState{delivery.Dead, "lost"}}, 0, 10)
	var invalid *delivery.InvalidError
	b.is.True(errors.As(err, &invalid))
	b.is.True(strings.Contains(invalid.Problem, `"lost"`))
	_, err = delivery.ParseDeliveryState("DEAD")
	b.is.True(errors.Is(err, delivery.ErrInvalid))
}

func TestBC03_EventsWithoutAnAsset(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	e1 := event("")
	e1.ID = "evt_1"
	b.is.True(!b.enqueueEvents(e1)[0].Duplicate)
	b.is.True(b.enqueueEvents(e1)[0].Duplicate)
	b.enqueue("")
	b.enqueue("a")
	requests := 0
	for range 3 {
		claims := b.claim(10)
		requests += len(claims)
		b.settle(delivery.Succeeded, claims...)
	}
	b.is.Equal(requests, 3)
	b.is.Equal(len(b.list(sub, delivery.Filter{})), 3)
	b.is.Equal(len(b.list(sub, delivery.Filter{OfAsset: true})), 2)
	b.is.Equal(len(b.list(sub, delivery.Filter{OfAsset: true, Asset: "a"})), 1)
	b.is.Equal(len(b.list(sub, delivery.Filter{Asset: "a"})), 3) // without OfAsset it is not a filter
}

func TestFilterByTypeAndTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	b.enqueue("a", "b")
	other := event("c")
	other.Type = "thing.deleted"
	b.enqueueEvents(other)
	b.settle(delivery.Succeeded, of(b.claim(10), "a"))
	b.exec("UPDATE postlane.deliveries SET created_at = '2026-01-01 10:00Z' WHERE asset = 'b'")
	b.exec("UPDATE postlane.settled SET created_at = '2026-01-01 11:00Z'")
	b.exec("UPDATE postlane.deliveries SET created_at = '2026-01-01 12:00Z' WHERE asset = 'c'")
	at := func(h int) time.Time {
		return time.Date(2026, 1, 1, h, 0, 0, 0, time.FixedZone("there", -5*3600)).Add(-5 * time.Hour)
	}
	for _, c := range []struct {
		filter delivery.Filter
		want   string
	}{
		{delivery.Filter{}, "c b a"},
		{delivery.Filter{EventType: "thing.deleted"}, "c"},
		{delivery.Filter{EventType: "thing.*"}, ""},
		{delivery.Filter{Since: at(11)}, "c a"}, // from it on
		{delivery.Filter{Until: at(11)}, "b"},   // before it
		{delivery.Filter{Since: at(10), Until: at(12)}, "b a"},
		{delivery.Filter{Since: at(13)}, ""},
	} {
		list := b.list(sub, c.filter)
		b.is.True(list != nil)
		var got []string
		for _, d := range list {
			got = append(got, d.Asset)
		}
		b.is.Equal(strings.Join(got, " "), c.want)
	}
}

// Payloads are in no list. They hold a word that nothing else does.
func TestTheLogWithholdsPayloads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	e := event("a")
	e.ID = "evt_1"
	e.Payload = []byte(`{"iban":"XK05 1212 0123 4567 8906"}`)
	b.enqueueEvents(e)
	claims := b.claim(1)
	show := func() string {
		streams, err := b.store.Streams(b.ctx, sub, nil, 10)
		b.is.NoErr(err)
		attempts, err := b.store.Attempts(b.ctx, sub, claims[0].ID())
		b.is.NoErr(err)
		stored, err := b.store.Event(b.ctx, tenant, "evt_1")
		b.is.NoErr(err)
		b.is.Equal(stored.PayloadSize, len(e.Payload))
		text, err := json.Marshal([]any{b.list(sub, delivery.Filter{}), streams, attempts, stored})
		b.is.NoErr(err)
		return string(text)
	}
	for range 2 {
		shown := show()
		for _, secret := range []string{"XK05", "iban", "eyJpYmFu"} { // the last is its base64
			b.is.True(!strings.Contains(shown, secret))
		}
		b.settle(delivery.Succeeded, claims...)
	}
	_, err := b.store.Event(b.ctx, "another", "evt_1")
	b.is.True(errors.Is(err, delivery.ErrNotFound))
	conflict := e
	conflict.Payload = []byte(`{"iban":"another"}`)
	tx, err := b.pool.Begin(b.ctx)
	b.is.NoErr(err)
	_, err = delivery.Enqueue(b.ctx, tx, conflict)
	b.is.True(errors.Is(err, delivery.ErrConflict))
	b.is.True(!strings.Contains(err.Error(), "iban"))
	b.is.NoErr(tx.Rollback(b.ctx))
}

func TestBC47_EmptyListsAreEmptyAndNotNil(t *testing.T) {
	t.Parallel()
	b := setup(t)
	subs, err := b.store.Subscriptions(b.ctx, "", 0, 10)
	b.is.NoErr(err)
	b.is.True(subs != nil && len(subs) == 0)
	sub := b.subscribe()
	for _, f := range []delivery.Filter{{}, {OfAsset: true}} {
		page, err := b.store.Deliveries(b.ctx, sub, f, 0, 10)
		b.is.NoErr(err)
		b.is.True(page.Deliveries != nil && len(page.Deliveries) == 0 && page.Next == 0)
	}
	streams, err := b.store.Streams(b.ctx, sub, nil, 10)
	b.is.NoErr(err)
	b.is.True(streams != nil && len(streams) == 0)
	attempts, err := b.store.Attempts(b.ctx, sub, 1)
	b.is.NoErr(err)
	b.is.True(attempts != nil && len(attempts) == 0)
	oldest, err := b.store.OldestDue(b.ctx)
	b.is.NoErr(err)
	b.is.True(oldest < 0)

	// Left out means every type; an empty list is refused, and never means everything.
	b.is.Equal(b.subscription(sub).EventTypes, []string{"*"})
	_, _, err = b.store.CreateSubscription(b.ctx, tenant, delivery.Settings{URL: "http://127.0.0.1:8099/", EventTypes: []string{}})
	b.is.True(errors.Is(err, delivery.ErrInvalid))
	_, err = b.store.UpdateSubscription(b.ctx, sub, func(s *delivery.Settings) error { s.EventTypes = []string{}; return nil })
	b.is.True(errors.Is(err, delivery.ErrInvalid))
	// One that was planted matches nothing.
	b.exec("UPDATE postlane.subscriptions SET event_types = '{}'")
	b.enqueue("a")
	b.is.Equal(b.counts(sub), "")
}

func TestStreamsShowWhatWaitsAndWhy(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	sub := b.subscribe(func(s *delivery.Settings) { s.MaxAttempts, s.OnDead = 2, delivery.Hold })
	other := b.subscribe(func(s *delivery.Settings) { s.EventTypes = []string{"never"} })
	b.enqueue("b", "b", "b", "", "", "a", "c", "d", "\u00e9")
	claims := b.claim(10)
	b.settleAs(func(r *delivery.Result) { r.Verdict, r.Gone = delivery.Failed, true }, of(claims, "a"))
	b.settleAs(func(r *delivery.Result) { r.Verdict, r.Delay = delivery.Failed, time.Minute }, of(claims, "c"))
	b.settle(delivery.Released, of(claims, "d"), of(claims, ""))

	streams, err := b.store.Streams(b.ctx, sub, nil, 100)
	b.is.NoErr(err)
	var got []string
	for _, s := range streams {
		got = append(got, fmt.Sprintf("%s %s depth %d attempts %d held %v due %v", s.Asset, s.Head.State, s.Depth, s.Head.Attempts, s.Head.Held, s.Head.Due != nil))
		b.is.Equal(s.InFlight >= 0, s.Head.State == delivery.Delivering)
	}
	b.is.Equal(got, []string{
		" pending depth 2 attempts 0 held false due false",
		"a dead depth 1 attempts 1 held true due false",
		"b delivering depth 3 attempts 1 held false due false",
		"c pending depth 1 attempts 1 held false due true",
		"d pending depth 1 attempts 0 held false due false",
		"é delivering depth 1 attempts 1 held false due false",
	})
	b.is.True(streams[3].Head.Due.Equal(c.now().Add(time.Minute)))
	b.is.Equal(streams[1].Head.Reason, "the endpoint answered 410 Gone")

	for size := range 7 { // by pages of every size
		if size == 0 {
			continue
		}
		var paged []string
		var after *string
		for {
			page, err := b.store.Streams(b.ctx, sub, after, size)
			b.is.NoErr(err)
			for _, s := range page {
				paged = append(paged, s.Asset)
			}
			if len(page) < size {
				break
			}
			after = &page[size-1].Asset
		}
		b.is.Equal(paged, []string{"", "a", "b", "c", "d", "é"})
	}
	between := "bb" // a position that is no stream's
	page, err := b.store.Streams(b.ctx, sub, &between, 1)
	b.is.NoErr(err)
	b.is.Equal(page[0].Asset, "c")
	none, err := b.store.Streams(b.ctx, other, nil, 10)
	b.is.NoErr(err)
	b.is.Equal(len(none), 0)
}

func TestTheOldestDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(func(s *delivery.Settings) { s.EventTypes = []string{"thing.*"} })
	paused := b.subscribe(func(s *delivery.Settings) { s.EventTypes = []string{"other"} })
	b.exec("UPDATE postlane.subscriptions SET state = 'paused' WHERE id = $1", paused)
	e := event("x")
	e.Type = "other"
	b.enqueueEvents(e)
	b.exec("UPDATE postlane.deliveries SET created_at = now() - interval '1 day'")
	age, err := b.store.OldestDue(b.ctx)
	b.is.NoErr(err)
	b.is.True(age < 0) // nobody waits for a paused subscription
	b.enqueue("a")
	b.exec("UPDATE postlane.deliveries SET created_at = now() - interval '1 hour' WHERE asset = 'a'")
	b.enqueue("b")
	age, err = b.store.OldestDue(b.ctx)
	b.is.NoErr(err)
	b.is.True(age >= time.Hour && age < 2*time.Hour)
}

// What a rate limit keeps waiting waits for no dispatcher, until there is a place for it.
func TestTheOldestDueWithinARateLimit(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	sub := b.subscribe(rate("10/m"))
	age := func() time.Duration {
		age, err := b.store.OldestDue(b.ctx)
		b.is.NoErr(err)
		return age
	}
	b.enqueue("a", "b", "c")
	b.exec("UPDATE postlane.deliveries SET created_at = $1", c.now().Add(-time.Hour))
	b.exec("UPDATE postlane.paces SET next_at = $1", c.now().Add(-2*time.Hour))
	b.is.Equal(age(), time.Hour) // it had a place all the time
	b.is.Equal(len(b.claim(10)), 1)
	b.is.True(age() < 0) // the next place is 6 s away
	c.advance(6 * time.Second)
	b.is.Equal(age(), time.Duration(0))
	c.advance(90 * time.Second)
	b.is.Equal(age(), 90*time.Second) // nobody claims
	b.exec("UPDATE postlane.paces SET next_at = $1", c.now().Add(time.Hour))
	b.is.Equal(age(), time.Hour+96*time.Second) // by a clock that was ahead: a claim takes it
	b.is.Equal(len(b.claim(10)), 1)
	_, err := b.store.UpdateSubscription(b.ctx, sub, func(s *delivery.Settings) error { s.RateLimit = delivery.Rate{}; return nil })
	b.is.NoErr(err)
	b.is.Equal(age(), time.Hour+96*time.Second)
}

func TestSubscriptionsArePagedById(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var want []delivery.SubscriptionID
	for range 7 {
		want = append(want, b.subscribe())
	}
	_, _, err := b.store.CreateSubscription(b.ctx, "another", delivery.Settings{URL: "http://127.0.0.1:8099/"})
	b.is.NoErr(err)
	slices.Sort(want)
	var got []delivery.SubscriptionID
	var after delivery.SubscriptionID
	for {
		page, err := b.store.Subscriptions(b.ctx, tenant, after, 3)
		b.is.NoErr(err)
		for _, s := range page {
			got = append(got, s.ID)
			after = s.ID
		}
		if len(page) < 3 {
			break
		}
	}
	b.is.Equal(got, want)
	all, err := b.store.Subscriptions(b.ctx, "", 0, 100)
	b.is.NoErr(err)
	b.is.Equal(len(all), 8)
}
