package kafkapub_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/matryer/is"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/publish/kafkapub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type testBundle struct {
	is        *is.I
	t         *testing.T
	client    *kgo.Client
	publisher *kafkapub.Publisher
}

// setup runs a broker in this process with a topic of three partitions.
func setup(t *testing.T) *testBundle {
	t.Helper()
	is := is.New(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "order.paid"))
	is.NoErr(err)
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("order.paid"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(1<<20))
	is.NoErr(err)
	t.Cleanup(client.Close)
	publisher, err := kafkapub.New(client, kafkapub.Config{})
	is.NoErr(err)
	return &testBundle{is, t, client, publisher}
}

// read returns the next n records.
func (b *testBundle) read(n int) (records []*kgo.Record) {
	b.t.Helper()
	for len(records) < n {
		fetches := b.client.PollFetches(b.t.Context())
		b.is.NoErr(fetches.Err())
		records = append(records, fetches.Records()...)
	}
	return records
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

func TestMessageArrivesWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := outbox.Message{
		ID: "m1", Topic: "order.paid", Queue: "o7", Payload: []byte("\x00\xff"), Headers: map[string]string{"a": "b"},
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	b.is.NoErr(b.publisher.Publish(t.Context(), m))
	r := b.read(1)[0]
	b.is.Equal(r.Value, m.Payload)
	b.is.Equal(string(r.Key), "o7")
	b.is.Equal([]string{header(r, "a"), header(r, kafkapub.HeaderID), header(r, kafkapub.HeaderTopic), header(r, kafkapub.HeaderTraceparent)},
		[]string{"b", "m1", "order.paid", m.Traceparent})
}

func TestTooLargeIsPermanent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	err := b.publisher.Publish(t.Context(), outbox.Message{ID: "m", Topic: "order.paid", Payload: make([]byte, 2<<20)})
	b.is.True(errors.Is(err, outbox.ErrPermanent))
}

func TestRelayKeepsOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	store, err := outbox.NewMemory(outbox.StoreConfig{})
	b.is.NoErr(err)
	tx, err := store.Begin(t.Context())
	b.is.NoErr(err)
	const n = 200
	for i := range n {
		_, err := store.Stage(t.Context(), tx, outbox.Message{ID: fmt.Sprintf("%03d", i), Topic: "order.paid", Queue: fmt.Sprint("q", i%7)})
		b.is.NoErr(err)
	}
	b.is.NoErr(tx.Commit(t.Context()))
	relay, err := outbox.NewRelay(outbox.RelayConfig{Store: store, Publisher: b.publisher, Batch: 16, Logger: slog.New(slog.DiscardHandler)})
	b.is.NoErr(err)
	for published := 0; published < n; {
		k, err := relay.Tick(t.Context())
		b.is.NoErr(err)
		published += k
	}
	last := map[string]string{}
	partition := map[string]int32{}
	for _, r := range b.read(n) {
		queue, id := string(r.Key), header(r, kafkapub.HeaderID)
		b.is.True(id > last[queue])
		if last[queue] != "" {
			b.is.Equal(r.Partition, partition[queue])
		}
		last[queue], partition[queue] = id, r.Partition
	}
	b.is.Equal(len(last), 7)
}
