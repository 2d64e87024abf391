package natspub_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/publish/natspub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testBundle is a NATS server with a stream of all subjects under "order.".
type testBundle struct {
	is        *is.I
	t         *testing.T
	js        jetstream.JetStream
	stream    jetstream.Stream
	publisher *natspub.Publisher
}

func setup(t *testing.T) *testBundle {
	t.Helper()
	is := is.New(t)
	js, close, err := startServer(t.TempDir())
	is.NoErr(err)
	t.Cleanup(close)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"order.>"}})
	is.NoErr(err)
	publisher, err := natspub.New(js, natspub.Config{})
	is.NoErr(err)
	return &testBundle{is, t, js, stream, publisher}
}

// startServer runs a NATS server with JetStream in this process.
func startServer(dir string) (jetstream.JetStream, func(), error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true, MaxPayload: 1 << 20})
	if err != nil {
		return nil, nil, err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return nil, nil, errors.New("the NATS server did not start")
	}
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(conn)
	return js, func() { conn.Close(); s.Shutdown(); s.WaitForShutdown() }, err
}

// stored returns what the stream has, in its order.
func (b *testBundle) stored() (messages []*jetstream.RawStreamMsg) {
	b.t.Helper()
	info, err := b.stream.Info(b.t.Context())
	b.is.NoErr(err)
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		m, err := b.stream.GetMsg(b.t.Context(), seq)
		b.is.NoErr(err)
		messages = append(messages, m)
	}
	return messages
}

func TestMessageArrivesWhole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := outbox.Message{
		ID: "m1", Topic: "order.paid", Queue: "o7", Payload: []byte("\x00\xff"), Headers: map[string]string{"Content-Type": "x/y"},
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	b.is.NoErr(b.publisher.Publish(t.Context(), m))
	b.is.NoErr(b.publisher.Publish(t.Context(), m)) // after a crash: dropped as a duplicate
	stored := b.stored()
	b.is.Equal(len(stored), 1)
	b.is.Equal(stored[0].Subject, "order.paid")
	b.is.Equal(stored[0].Data, m.Payload)
	for name, want := range map[string]string{
		nats.MsgIdHdr: "m1", "Content-Type": "x/y", natspub.HeaderQueue: "o7", natspub.HeaderTopic: "order.paid",
		natspub.HeaderTraceparent: m.Traceparent,
	} {
		b.is.Equal(stored[0].Header.Get(name), want)
	}
	b.is.NoErr(b.publisher.Publish(t.Context(), outbox.Message{ID: "m2", Topic: "order.paid"}))
	b.is.Equal(b.stored()[1].Header.Values(natspub.HeaderTraceparent), nil)
}

func TestErrorsSayWhetherToTryAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	err := b.publisher.Publish(t.Context(), outbox.Message{ID: "m", Topic: "nobody.listens"})
	b.is.True(err != nil && !errors.Is(err, outbox.ErrPermanent)) // the stream may be made yet
	err = b.publisher.Publish(t.Context(), outbox.Message{ID: "m", Topic: "order.big", Payload: make([]byte, 1<<20+1)})
	b.is.True(errors.Is(err, outbox.ErrPermanent))
	err = b.publisher.Publish(t.Context(), outbox.Message{ID: "m", Topic: "order bad"})
	b.is.True(errors.Is(err, outbox.ErrPermanent))
}

func TestRelayKeepsOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool := pgtest.New(t)
	store, err := outbox.NewPostgres(pool, outbox.StoreConfig{})
	b.is.NoErr(err)
	const n = 200
	b.is.NoErr(pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for i := range n {
			if _, err := outbox.Stage(t.Context(), tx, outbox.Message{ID: fmt.Sprint(i), Topic: "order.paid", Queue: fmt.Sprint("q", i%7)}); err != nil {
				return err
			}
		}
		return nil
	}))
	relay, err := outbox.NewRelay(outbox.RelayConfig{Store: store, Publisher: b.publisher, Batch: 16, Logger: slog.New(slog.DiscardHandler)})
	b.is.NoErr(err)
	for published := 0; published < n; {
		k, err := relay.Tick(t.Context())
		b.is.NoErr(err)
		published += k
	}
	next := map[string]int{}
	for _, m := range b.stored() {
		queue := m.Header.Get(natspub.HeaderQueue)
		var first, id int
		_, _ = fmt.Sscan(strings.TrimPrefix(queue, "q"), &first)
		_, _ = fmt.Sscan(m.Header.Get(nats.MsgIdHdr), &id)
		b.is.Equal(id, first+7*next[queue])
		next[queue]++
	}
	b.is.Equal(len(b.stored()), n)
}

func TestNewNeedsJetStream(t *testing.T) {
	t.Parallel()
	_, err := natspub.New(nil, natspub.Config{})
	is.New(t).True(err != nil)
}
