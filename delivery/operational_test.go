package delivery_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/receiver"
)

// told are the operational events that were enqueued, first to last, decoded.
func (b *bundle) told() (list []map[string]any) {
	b.t.Helper()
	rows, err := b.pool.Query(b.ctx, `SELECT e.type, e.asset, e.tenant, e.payload FROM postlane.events e WHERE e.type LIKE 'postlane.%' ORDER BY e.seq`)
	b.is.NoErr(err)
	for rows.Next() {
		var eventType, asset, tenant string
		var payload []byte
		b.is.NoErr(rows.Scan(&eventType, &asset, &tenant, &payload))
		var v map[string]any
		b.is.NoErr(json.Unmarshal(payload, &v))
		b.is.Equal([]any{v["type"], v["subscription_id"], tenant}, []any{eventType, asset, "acme"})
		at, err := time.Parse(time.RFC3339, v["at"].(string))
		b.is.NoErr(err)
		b.is.True(time.Since(at) < time.Minute)
		list = append(list, v)
	}
	b.is.NoErr(rows.Err())
	return list
}

func wants(types ...string) func(*delivery.Settings) {
	return func(s *delivery.Settings) { s.EventTypes = types }
}

// An endpoint that fails is told of at another, signed and in order, by a real dispatcher.
func TestOperationalEventsThroughADispatcher(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	failing := s.endpoint("/failing", wants("*"), func(set *delivery.Settings) {
		set.MaxAttempts, set.OnDead, set.DisableAfter = 1, delivery.Hold, 2
	})
	s.behave("/failing", receiver.Behaviour{Status: 500})
	s.endpoint("/ops", wants("postlane.*"))
	s.endpoint("/disabled", wants("postlane.subscription.disabled"))
	s.endpoint("/all") // wants *
	arrivals, stop := s.receiver.Arrivals(100)
	defer stop()
	s.dispatch(s.config())
	s.enqueueEvents(event("a"))
	s.eventually(func() bool { return s.requests("/ops") == 2 })
	s.enqueueEvents(event("b"))
	s.eventually(func() bool { return s.requests("/ops") == 5 && s.requests("/disabled") == 1 })
	s.is.Equal(s.subscription(failing).State, delivery.Disabled)
	s.is.Equal(s.requests("/all"), 2)
	var types []string
	for range 10 {
		if a := await(t, arrivals); a.Path == "/ops" {
			s.is.Equal(a.Asset, failing.String())
			types = append(types, a.Type)
		}
	}
	s.is.Equal(types, []string{
		delivery.DeliveryDeadEvent, delivery.StreamHeldEvent, delivery.DeliveryDeadEvent, delivery.StreamHeldEvent, delivery.SubscriptionDisabledEvent,
	})
	s.sound()
}

// What is told, by what happened.
func TestOperationalEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(wants("thing.*"), func(s *delivery.Settings) { s.MaxAttempts = 1 })
	b.enqueue("a")
	b.settle(delivery.Failed, b.claim(1)...)
	b.is.Equal(len(b.told()), 0) // nobody listens

	ops := b.subscribe(wants("*", "postlane.*"))
	other, _, err := b.store.CreateSubscription(b.ctx, "other", delivery.Settings{URL: "http://127.0.0.1:8099/", EventTypes: []string{"postlane.*"}})
	b.is.NoErr(err)
	e := b.enqueue("an asset")[0]
	for _, c := range b.claim(10) {
		if c.Subscription == sub {
			b.settleAs(func(r *delivery.Result) { r.Verdict = delivery.Failed }, c)
		} else {
			b.settle(delivery.Succeeded, c)
		}
	}
	told := b.told()
	b.is.Equal(len(told), 1)
	delete(told[0], "at")
	b.is.Equal(told[0], map[string]any{
		"type": "postlane.delivery.dead", "subscription_id": sub.String(), "delivery_id": delivery.ID(e.Seq).String(), "event_id": e.ID,
		"event_type": "thing.changed", "asset": "an asset", "attempts": 1., "reason": "attempts used up: http_status", "held": false,
	})
	b.is.Equal(b.counts(ops), "pending:1 delivered:1 ")
	b.is.Equal(b.counts(other.ID), "")
	got := b.claim(10)
	b.is.Equal(len(got), 1)
	b.is.Equal([]string{got[0].Asset, got[0].EventType}, []string{sub.String(), "postlane.delivery.dead"})
	b.settle(delivery.Succeeded, got...)

	// The endpoint is gone: death and disabling in one transaction.
	b.enqueue("")
	for _, c := range b.claim(10) {
		b.settleAs(func(r *delivery.Result) { r.Verdict, r.Gone = delivery.Failed, c.Subscription == sub }, c)
	}
	told = b.told()
	b.is.Equal(len(told), 3)
	b.is.Equal([]any{told[1]["type"], told[1]["asset"], told[1]["reason"]}, []any{"postlane.delivery.dead", nil, "the endpoint answered 410 Gone"})
	b.is.Equal([]any{told[2]["type"], told[2]["reason"]}, []any{"postlane.subscription.disabled", "the endpoint answered 410 Gone"})

	// A worker that goes silent is the cause too.
	_, err = b.store.Enable(b.ctx, sub)
	b.is.NoErr(err)
	b.enqueue("c")
	b.is.True(len(b.claim(10)) > 0)
	b.exec("UPDATE postlane.leases SET lease_until = now() - interval '1 second'")
	_, err = b.store.Reclaim(b.ctx, 10)
	b.is.NoErr(err)
	told = b.told()
	b.is.Equal(len(told), 4)
	b.is.Equal([]any{told[3]["type"], told[3]["reason"]}, []any{"postlane.delivery.dead", "stalled"})
}

// An operational event and what it tells of commit together, or neither does.
func TestOperationalEventsAreOfTheSameTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(wants("thing.*"), func(s *delivery.Settings) { s.MaxAttempts = 1 })
	b.subscribe(wants("postlane.delivery.*"))
	b.enqueue("a")
	claims := b.claim(1)
	undone := errors.New("undone")
	err := pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) error {
		_, err := b.store.SettleTx(b.ctx, tx, []delivery.Result{{Claim: &claims[0], Verdict: delivery.Failed}})
		b.is.NoErr(err)
		return undone
	})
	b.is.Equal(err, undone)
	b.is.Equal(len(b.told()), 0)
	b.settle(delivery.Failed, claims...)
	b.is.Equal(len(b.told()), 1)
	b.is.Equal(b.settle(delivery.Failed, claims...), []delivery.Settled{delivery.SettledLost})
	b.is.Equal(len(b.told()), 1)
}

// Endpoints that listen and fail come to rest: the death of an operational event is not
// told, and each disabling once.
func TestOperationalEventsDoNotFeedThemselves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, limit := range []int{delivery.Never, delivery.Never, 5} {
		b.subscribe(wants("*", "postlane.*"), func(s *delivery.Settings) { s.MaxAttempts, s.DisableAfter = 1, limit })
	}
	b.enqueue("a", "b")
	rounds := 0
	for {
		claims := b.claim(100)
		if len(claims) == 0 {
			break
		}
		if rounds++; rounds > 50 {
			t.Fatal("they go on and on")
		}
		b.settle(delivery.Failed, claims...)
	}
	count := map[string]int{}
	for _, v := range b.told() {
		count[v["type"].(string)]++
	}
	b.is.Equal(count, map[string]int{"postlane.delivery.dead": 6, "postlane.subscription.disabled": 1})
}

func TestReservedTypesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	for eventType, fine := range map[string]bool{"postlane.delivery.dead": false, "postlane.mine": false, "postlane": true, "postlanes.x": true} {
		_, err := delivery.Enqueue(b.ctx, nil, delivery.Event{Tenant: tenant, Type: eventType + ".é"})
		b.is.True(errors.Is(err, delivery.ErrInvalid))
		err = pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) error {
			_, err := delivery.Enqueue(b.ctx, tx, delivery.Event{Tenant: tenant, Type: eventType})
			return err
		})
		b.is.Equal(err == nil, fine)
		var invalid *delivery.InvalidError
		b.is.Equal(errors.As(err, &invalid) && invalid.Field == "Type" && strings.Contains(invalid.Problem, "Postlane's own"), !fine)
	}
}

// A replay for * leaves operational events out; one for those that get them has them.
func TestReplayOfOperationalEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(wants("thing.*"), func(s *delivery.Settings) { s.MaxAttempts = 1 })
	ops := b.subscribe(wants("*", "postlane.*"))
	all := b.subscribe(wants("*"))
	b.enqueue("a")
	b.settle(delivery.Failed, b.claim(10)...)
	for sub, want := range map[delivery.SubscriptionID]int64{ops: 2, all: 1} {
		c, err := b.store.CountReplay(b.ctx, replayOf(sub, ""))
		b.is.NoErr(err)
		b.is.Equal(c.Events, want)
	}
}

// Conditions are for operational events and replays as for all else.
func TestConditionsOfOperationalEventsAndReplays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	failing := b.subscribe(wants("thing.*"), func(s *delivery.Settings) { s.MaxAttempts = 1 })
	where := func(path string, value any) func(*delivery.Settings) {
		return func(s *delivery.Settings) {
			s.EventTypes, s.Conditions = []string{"postlane.*", "thing.*"}, []delivery.Condition{{Path: path, Op: delivery.Eq, Value: value}}
		}
	}
	one := b.subscribe(where("a", 1))
	two := b.subscribe(where("a", 2))
	dead := b.subscribe(where("event_type", "thing.changed"))
	b.enqueue("x")
	for _, c := range b.claim(10) {
		if c.Subscription == failing {
			b.settleAs(func(r *delivery.Result) { r.Verdict = delivery.Failed }, c)
		}
	}
	b.is.Equal([]string{b.counts(one), b.counts(two), b.counts(dead)}, []string{"delivering:1 ", "", "pending:1 "})
	for sub, want := range map[delivery.SubscriptionID]int64{one: 1, two: 0, dead: 1} {
		c, err := b.store.CountReplay(b.ctx, replayOf(sub, ""))
		b.is.NoErr(err)
		b.is.Equal(c.Events, want)
	}
}

// A death finds those who listen by an index that holds nobody else.
func TestOperationalPlans(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`INSERT INTO postlane.subscriptions (id, tenant, url) SELECT n, 'acme', 'https://x.example/' FROM generate_series(1, 5000) n`)
	var plan string
	b.is.NoErr(b.pool.QueryRow(b.ctx, `EXPLAIN (FORMAT JSON) SELECT s.id FROM postlane.subscriptions s
		WHERE s.tenant = 'acme' AND s.deleted_at IS NULL AND s.event_types && '{postlane.*,postlane.delivery.*,postlane.delivery.dead,postlane.stream.*,postlane.stream.held,postlane.subscription.*,postlane.subscription.disabled}'::text[]
		  AND s.event_types && '{postlane.*}'::text[]`).Scan(&plan))
	b.is.True(strings.Contains(plan, "subscriptions_operational"))
}
