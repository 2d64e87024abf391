package deliverypub_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/publish/deliverypub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testBundle is a database with a subscription of acme to everything.
type testBundle struct {
	*pgxpool.Pool
	is        *is.I
	t         *testing.T
	publisher *deliverypub.Publisher
}

func setup(t *testing.T, config deliverypub.Config) *testBundle {
	t.Helper()
	b := &testBundle{Pool: pgtest.New(t), is: is.New(t), t: t}
	_, err := b.Exec(t.Context(), "INSERT INTO postlane.subscriptions (tenant, url) VALUES ('acme', 'https://example.com/')")
	b.is.NoErr(err)
	b.publisher, err = deliverypub.New(b.Pool, config)
	b.is.NoErr(err)
	return b
}

// deliveries returns the ids of the events on their way, in order.
func (b *testBundle) deliveries() []string {
	b.t.Helper()
	rows, err := b.Query(b.t.Context(), "SELECT event_id FROM postlane.deliveries ORDER BY seq")
	b.is.NoErr(err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	b.is.NoErr(err)
	return ids
}

func message(id string) outbox.Message {
	return outbox.Message{ID: id, Topic: "invoice.paid", Queue: "in-1", Tenant: "acme", Payload: []byte("{}")}
}

func TestMessageIsOneEvent(t *testing.T) {
	t.Parallel()
	b := setup(t, deliverypub.Config{})
	m := message("m1")
	m.Headers = map[string]string{deliverypub.HeaderContentType: "text/plain"}
	for range 3 { // as after crashes
		b.is.NoErr(b.publisher.Publish(t.Context(), m))
	}
	b.is.Equal(b.deliveries(), []string{"m1"})
	var asset, contentType string
	b.is.NoErr(b.QueryRow(t.Context(), "SELECT asset, content_type FROM postlane.events").Scan(&asset, &contentType))
	b.is.Equal([]string{asset, contentType}, []string{"in-1", "text/plain"})
	m.Queue = outbox.DefaultQueue
	e, err := deliverypub.Event(m)
	b.is.NoErr(err)
	b.is.Equal(e.Asset, "")
}

// A relay that was killed between publishing and saying so publishes again: each
// subscription has the event once all the same.
func TestBC14_ACrashAfterPublishingMakesNoSecondDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t, deliverypub.Config{})
	_, err := b.Exec(t.Context(), `INSERT INTO postlane.subscriptions (tenant, url)
		SELECT 'acme', 'https://example.com/' || n FROM generate_series(1, 2) n`)
	b.is.NoErr(err)
	now := time.Now()
	open := func() *outbox.Postgres {
		store, err := outbox.NewPostgres(b.Pool, outbox.StoreConfig{Now: func() time.Time { return now }})
		b.is.NoErr(err)
		return store
	}
	b.is.NoErr(pgx.BeginFunc(t.Context(), b.Pool, func(tx pgx.Tx) error {
		_, err := outbox.Stage(t.Context(), tx, message("m"))
		return err
	}))
	for range 3 {
		claims, err := open().Claim(t.Context(), 10)
		b.is.NoErr(err)
		b.is.Equal(len(claims), 1)
		b.is.NoErr(b.publisher.Publish(t.Context(), claims[0].Message))
		now = now.Add(outbox.DefaultLease) // killed; nobody marks it
	}
	b.is.Equal(b.deliveries(), []string{"m", "m", "m"}) // one a subscription
	var subscriptions int
	b.is.NoErr(b.QueryRow(t.Context(), "SELECT count(DISTINCT subscription_id) FROM postlane.deliveries").Scan(&subscriptions))
	b.is.Equal(subscriptions, 3)
}

func TestBatchStopsAtWhatCannotBe(t *testing.T) {
	t.Parallel()
	b := setup(t, deliverypub.Config{})
	bad := message("bad")
	bad.Topic = "not an event type"
	n, err := b.publisher.PublishBatch(t.Context(), []outbox.Message{message("m1"), message("m2"), bad, message("m3")})
	b.is.Equal(n, 2)
	b.is.True(errors.Is(err, outbox.ErrPermanent) && errors.Is(err, delivery.ErrInvalid))
	other := message("m1")
	other.Payload = []byte("other")
	n, err = b.publisher.PublishBatch(t.Context(), []outbox.Message{other})
	b.is.Equal(n, 0)
	b.is.True(errors.Is(err, outbox.ErrPermanent) && errors.Is(err, delivery.ErrConflict))
	b.is.Equal(b.deliveries(), []string{"m1", "m2"})
}

func TestMappingMayFail(t *testing.T) {
	t.Parallel()
	b := setup(t, deliverypub.Config{Event: func(m outbox.Message) (delivery.Event, error) {
		if m.ID == "bad" {
			return delivery.Event{}, errors.New("no such thing")
		}
		return deliverypub.Event(m)
	}})
	n, err := b.publisher.PublishBatch(t.Context(), []outbox.Message{message("m1"), message("bad"), message("m2")})
	b.is.Equal(n, 1)
	b.is.True(errors.Is(err, outbox.ErrPermanent))
	n, err = b.publisher.PublishBatch(t.Context(), []outbox.Message{message("bad")})
	b.is.Equal(n, 0)
	b.is.True(errors.Is(err, outbox.ErrPermanent))
}

func TestRelayIntoDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t, deliverypub.Config{})
	store, err := outbox.NewPostgres(b.Pool, outbox.StoreConfig{})
	b.is.NoErr(err)
	var want []string
	b.is.NoErr(pgx.BeginFunc(t.Context(), b.Pool, func(tx pgx.Tx) error {
		for i := range 50 {
			want = append(want, fmt.Sprint("m", i))
			if _, err := outbox.Stage(t.Context(), tx, message(want[i])); err != nil {
				return err
			}
		}
		return nil
	}))
	relay, err := outbox.NewRelay(outbox.RelayConfig{Store: store, Publisher: b.publisher, Logger: slog.New(slog.DiscardHandler)})
	b.is.NoErr(err)
	n, err := relay.Tick(t.Context())
	b.is.NoErr(err)
	b.is.Equal(n, 50)
	b.is.Equal(b.deliveries(), want)
}
