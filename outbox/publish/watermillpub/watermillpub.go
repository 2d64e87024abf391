// Package watermillpub publishes outbox messages through any Watermill Publisher.
//
// The outbox message's ID is the Watermill message's UUID, its headers are metadata.
// A message counts as published when the Watermill publisher returns: whether it is
// safe then is that publisher's matter, so take one that waits for its broker.
package watermillpub

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postlane-go/postlane/outbox"
)

// The metadata that a message has beside its headers.
const (
	MetadataQueue       = "postlane_queue"
	MetadataTraceparent = "traceparent" // only where there was a span
)

// Config is what a Publisher may be told. The zero value works.
type Config struct {
	// Topic says where a message goes. Default: its Topic.
	Topic func(outbox.Message) string
}

// Publisher is an outbox.Publisher through a Watermill publisher, which is the
// caller's to close after the relay has stopped. It may be used from any goroutine
// if the Watermill publisher may.
type Publisher struct {
	publisher message.Publisher
	config    Config
}

var _ outbox.Publisher = (*Publisher)(nil)

// New returns a Publisher through publisher.
func New(publisher message.Publisher, config Config) (*Publisher, error) {
	if publisher == nil {
		return nil, errors.New("watermillpub: a Publisher needs a Watermill publisher")
	}
	if config.Topic == nil {
		config.Topic = func(m outbox.Message) string { return m.Topic }
	}
	return &Publisher{publisher, config}, nil
}

// Publish hands a message on. Watermill publishers take no context but that of the
// message: whether a call ends when ctx does is up to them.
func (p *Publisher) Publish(ctx context.Context, m outbox.Message) error {
	msg := message.NewMessage(m.ID, m.Payload)
	msg.SetContext(ctx)
	for name, value := range m.Headers {
		msg.Metadata.Set(name, value)
	}
	msg.Metadata.Set(MetadataQueue, m.Queue)
	if m.Traceparent != "" {
		msg.Metadata.Set(MetadataTraceparent, m.Traceparent)
	}
	if topic := p.config.Topic(m); topic != "" {
		if err := p.publisher.Publish(topic, msg); err != nil {
			return fmt.Errorf("watermillpub: topic %q: %w", topic, err)
		}
		return nil
	}
	return outbox.Permanent(errors.New("watermillpub: Config.Topic gives no topic"))
}
