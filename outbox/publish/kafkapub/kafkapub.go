// Package kafkapub publishes outbox messages to Kafka through franz-go.
//
// A message becomes a record of the topic that Config.Topic gives it, with its queue
// as key, so that a queue stays within one partition. It counts as published when
// the brokers acknowledge it as the client's RequiredAcks says (franz-go's default:
// all in sync). The records of a queue are written in their order: each waits for
// the answer to the one before it. Kafka does not drop duplicates that a crash
// leaves behind: receivers tell them by the header HeaderID.
package kafkapub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postlane-go/postlane/outbox"
)

// The headers that a record has beside the message's own.
const (
	HeaderID          = "postlane-id"
	HeaderTopic       = "postlane-topic"
	HeaderTraceparent = "traceparent" // only where there was a span
)

// Config is what a Publisher may be told. The zero value works.
type Config struct {
	// Topic says where a message goes. Default: its Topic.
	Topic func(outbox.Message) string
}

// Publisher is an outbox.Publisher into Kafka. It may be used from any goroutine;
// the client is the caller's, who closes it after the relay has stopped.
type Publisher struct {
	client *kgo.Client
	config Config
}

var _ outbox.Publisher = (*Publisher)(nil)

// New returns a Publisher on a client. The client must not be a transactional one,
// and kgo.ProducerLinger(0) serves it best: a record waits for nobody.
func New(client *kgo.Client, config Config) (*Publisher, error) {
	if client == nil {
		return nil, errors.New("kafkapub: a Publisher needs a client; see kgo.NewClient")
	}
	if config.Topic == nil {
		config.Topic = func(m outbox.Message) string { return m.Topic }
	}
	return &Publisher{client, config}, nil
}

// Publish produces a record and waits for it. A record that is too large and a topic
// that cannot be are permanent (outbox.Permanent).
func (p *Publisher) Publish(ctx context.Context, m outbox.Message) error {
	record := &kgo.Record{Topic: p.config.Topic(m), Key: []byte(m.Queue), Value: m.Payload}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(m.Headers[name])})
	}
	record.Headers = append(record.Headers,
		kgo.RecordHeader{Key: HeaderID, Value: []byte(m.ID)}, kgo.RecordHeader{Key: HeaderTopic, Value: []byte(m.Topic)})
	if m.Traceparent != "" {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: HeaderTraceparent, Value: []byte(m.Traceparent)})
	}
	err := p.client.ProduceSync(ctx, record).FirstErr()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge), errors.Is(err, kerr.InvalidTopicException):
		return outbox.Permanent(fmt.Errorf("kafkapub: topic %q: %w", record.Topic, err))
	default:
		return fmt.Errorf("kafkapub: topic %q: %w", record.Topic, err)
	}
}
