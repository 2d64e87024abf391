package postlanetest_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/signing"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/postlanetest"
	"github.com/postlane-go/postlane/verify"
)

func enqueue(t *testing.T, pool *pgxpool.Pool, events ...delivery.Event) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := delivery.Enqueue(t.Context(), tx, events...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDeliverDeliversAllThatIsDue(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pool := pgtest.NewEmpty(t)
	postlanetest.Migrate(t, pool)
	store := postlanetest.NewStore(t, pool, nil)
	receiver := postlanetest.NewReceiver(t)

	postlanetest.Deliver(t, delivery.Config{Store: store}) // with no subscription at all
	receiver.Subscribe(store, "acme", "invoice.*")
	postlanetest.Deliver(t, delivery.Config{Store: store}) // with nothing to deliver

	var events []delivery.Event
	for i := range 100 {
		events = append(events, delivery.Event{Tenant: "acme", Type: "invoice.paid", Asset: []string{"a", "b", ""}[i%3], Payload: []byte("{}")})
	}
	events = append(events, delivery.Event{Tenant: "acme", Type: "customer.created"}, delivery.Event{Tenant: "other", Type: "invoice.paid"})
	enqueue(t, pool, events...)
	postlanetest.Deliver(t, delivery.Config{Store: store})
	requests := receiver.Requests()
	is.Equal(len(requests), 100)
	last := map[string]int64{}
	for _, d := range requests {
		is.Equal(d.StreamPrev, last[d.Asset])
		last[d.Asset] = d.StreamSeq
	}
}

func TestRetriesTakeNoTime(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pool := pgtest.New(t)
	clock := postlanetest.NewClock(time.Time{})
	store := postlanetest.NewStore(t, pool, clock)
	receiver := postlanetest.NewReceiver(t)
	receiver.Answer(func(d *verify.Delivery) int {
		if d.Asset == "broken" || d.Attempt < 3 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	sub := receiver.Subscribe(store, "acme")
	enqueue(t, pool,
		delivery.Event{ID: "first", Tenant: "acme", Type: "a.b", Asset: "slow", Payload: []byte("{}")},
		delivery.Event{ID: "second", Tenant: "acme", Type: "a.b", Asset: "slow", Payload: []byte("{}")},
		delivery.Event{ID: "third", Tenant: "acme", Type: "a.b", Asset: "broken", Payload: []byte("{}")},
	)
	arrived := func() string {
		var ids []string
		for _, d := range receiver.Requests() {
			if d.Asset == "slow" {
				ids = append(ids, d.ID)
			}
		}
		return strings.Join(ids, " ")
	}
	postlanetest.Deliver(t, delivery.Config{Store: store})
	is.Equal(arrived(), "first")
	postlanetest.Deliver(t, delivery.Config{Store: store})
	is.Equal(arrived(), "first") // its time has not come
	for range sub.MaxAttempts {
		clock.Advance(12 * time.Hour)
		postlanetest.Deliver(t, delivery.Config{Store: store})
	}
	is.Equal(arrived(), strings.Repeat("first ", 3)+strings.TrimSpace(strings.Repeat("second ", 3)))
	is.Equal(len(receiver.Requests()), 6+sub.MaxAttempts)
}

func TestWhatIsPausedIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pool := pgtest.New(t)
	store := postlanetest.NewStore(t, pool, nil)
	receiver := postlanetest.NewReceiver(t)
	sub := receiver.Subscribe(store, "acme")
	receiver.Subscribe(store, "busy")
	_, err := store.Pause(t.Context(), sub.ID, "")
	is.NoErr(err)
	enqueue(t, pool, delivery.Event{Tenant: "acme", Type: "a.b", Payload: []byte("{}")}, delivery.Event{Tenant: "busy", Type: "a.b", Payload: []byte("{}")})
	idle, err := store.Idle(t.Context())
	is.NoErr(err)
	is.True(!idle)
	postlanetest.Deliver(t, delivery.Config{Store: store})
	is.Equal(len(receiver.Requests()), 1)
	idle, err = store.Idle(t.Context())
	is.NoErr(err)
	is.True(idle)
}

func TestTheReceiverRefusesWhatIsNotSignedForIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pool := pgtest.New(t)
	store := postlanetest.NewStore(t, pool, nil)
	got := &failures{TB: t}
	receiver := postlanetest.NewReceiver(got)
	_, _, err := store.CreateSubscription(t.Context(), "acme", delivery.Settings{URL: receiver.URL})
	is.NoErr(err)
	stranger, err := signing.Generate(0)
	is.NoErr(err)
	receiver.Accept(stranger)
	enqueue(t, pool, delivery.Event{Tenant: "acme", Type: "a.b", Payload: []byte("{}")})
	postlanetest.Deliver(t, delivery.Config{Store: store})
	is.Equal(len(receiver.Requests()), 0)
	is.Equal(len(got.text), 1)
	is.True(strings.Contains(got.text[0], signing.ErrNoMatch.Error()))
}

func TestRelayPublishesAllThatIsDue(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	pool := pgtest.New(t)
	clock := postlanetest.NewClock(time.Time{})
	store, err := outbox.NewPostgres(pool, outbox.StoreConfig{Now: clock.Now})
	is.NoErr(err)
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := store.Stage(ctx, tx,
			outbox.Message{ID: "m1", Topic: "mail"}, outbox.Message{ID: "m2", Topic: "mail"},
			outbox.Message{ID: "m3", Topic: "mail", Queue: "later", RunAt: clock.Now().Add(time.Hour)},
		)
		return err
	})
	is.NoErr(err)
	var published []string
	fails := 1
	config := outbox.RelayConfig{Store: store, Publisher: outbox.PublisherFunc(func(_ context.Context, m outbox.Message) error {
		if m.ID == "m2" && fails > 0 {
			fails--
			return errors.New("the broker is away")
		}
		published = append(published, m.ID)
		return nil
	})}
	stats := postlanetest.Relay(t, config)
	is.Equal(published, []string{"m1"})
	is.Equal(stats.Failed, int64(1))
	clock.Advance(time.Minute)
	is.Equal(postlanetest.Relay(t, config).Published, int64(1))
	clock.Advance(time.Hour)
	is.Equal(postlanetest.Relay(t, config).Published, int64(1))
	is.Equal(published, []string{"m1", "m2", "m3"})
}

// What waits for a place in a rate limit waits for its time, as a retry does.
func TestWhatWaitsForARateLimitIsLeft(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pool := pgtest.New(t)
	clock := postlanetest.NewClock(time.Time{})
	store := postlanetest.NewStore(t, pool, clock)
	receiver := postlanetest.NewReceiver(t)
	sub := receiver.Subscribe(store, "acme")
	_, err := store.UpdateSubscription(t.Context(), sub.ID, func(s *delivery.Settings) error {
		s.RateLimit = delivery.Rate{Requests: 1, Per: time.Minute}
		return nil
	})
	is.NoErr(err)
	for _, asset := range []string{"a", "b", "a"} {
		enqueue(t, pool, delivery.Event{Tenant: "acme", Type: "a.b", Asset: asset, Payload: []byte("{}")})
	}
	for n := range 3 {
		postlanetest.Deliver(t, delivery.Config{Store: store})
		is.Equal(len(receiver.Requests()), n+1)
		clock.Advance(time.Minute)
	}
}

// A retry that is due waits too, if its subscription is paused.
func TestADueRetryOfWhatIsPausedIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pool := pgtest.New(t)
	clock := postlanetest.NewClock(time.Time{})
	store := postlanetest.NewStore(t, pool, clock)
	receiver := postlanetest.NewReceiver(t)
	receiver.Answer(func(*verify.Delivery) int { return http.StatusInternalServerError })
	sub := receiver.Subscribe(store, "acme")
	enqueue(t, pool, delivery.Event{Tenant: "acme", Type: "a.b", Payload: []byte("{}")})
	postlanetest.Deliver(t, delivery.Config{Store: store})
	_, err := store.Pause(t.Context(), sub.ID, "")
	is.NoErr(err)
	clock.Advance(12 * time.Hour)
	postlanetest.Deliver(t, delivery.Config{Store: store})
	is.Equal(len(receiver.Requests()), 1)
	_, err = store.Enable(t.Context(), sub.ID)
	is.NoErr(err)
	postlanetest.Deliver(t, delivery.Config{Store: store})
	is.Equal(len(receiver.Requests()), 2)
}
