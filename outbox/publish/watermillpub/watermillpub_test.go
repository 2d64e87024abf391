package watermillpub_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/matryer/is"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/publish/watermillpub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRelayToWatermill(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	channel := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	defer channel.Close()
	publisher, err := watermillpub.New(channel, watermillpub.Config{})
	is.NoErr(err)
	store, err := outbox.NewMemory(outbox.StoreConfig{})
	is.NoErr(err)
	tx, err := store.Begin(t.Context())
	is.NoErr(err)
	_, err = store.Stage(t.Context(), tx, outbox.Message{
		ID: "m1", Topic: "order.paid", Queue: "o7", Payload: []byte("{}"), Headers: map[string]string{"a": "b"},
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	})
	is.NoErr(err)
	is.NoErr(tx.Commit(t.Context()))
	relay, err := outbox.NewRelay(outbox.RelayConfig{Store: store, Publisher: publisher, Logger: slog.New(slog.DiscardHandler)})
	is.NoErr(err)
	n, err := relay.Tick(t.Context())
	is.NoErr(err)
	is.Equal(n, 1)

	messages, err := channel.Subscribe(t.Context(), "order.paid")
	is.NoErr(err)
	m := <-messages
	m.Ack()
	is.Equal(m.UUID, "m1")
	is.Equal(string(m.Payload), "{}")
	is.Equal(m.Metadata.Get("a"), "b")
	is.Equal(m.Metadata.Get(watermillpub.MetadataQueue), "o7")
	is.True(m.Metadata.Get(watermillpub.MetadataTraceparent) != "")
}

type refuses struct{ message.Publisher }

func (refuses) Publish(string, ...*message.Message) error { return errors.New("refused") }

func TestErrorsArePassedOn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	publisher, err := watermillpub.New(refuses{}, watermillpub.Config{})
	is.NoErr(err)
	err = publisher.Publish(t.Context(), outbox.Message{ID: "m", Topic: "t"})
	is.True(err != nil && !errors.Is(err, outbox.ErrPermanent))
	none, err := watermillpub.New(refuses{}, watermillpub.Config{Topic: func(outbox.Message) string { return "" }})
	is.NoErr(err)
	is.True(errors.Is(none.Publish(t.Context(), outbox.Message{ID: "m", Topic: "t"}), outbox.ErrPermanent))
	_, err = watermillpub.New(nil, watermillpub.Config{})
	is.True(err != nil)
}
