// Package natspub publishes outbox messages to NATS JetStream.
//
// A message goes to the subject that Config.Subject gives it, with its ID as
// Nats-Msg-Id, so that JetStream drops what it gets twice within the stream's
// duplicate window. It counts as published when the stream has stored it. The
// messages of a queue are stored in their order: each waits for the answer to the
// one before it.
package natspub

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postlane-go/postlane/outbox"
)

// The headers that a message has beside its own and Nats-Msg-Id.
const (
	HeaderTopic       = "Postlane-Topic"
	HeaderQueue       = "Postlane-Queue"
	HeaderTraceparent = "traceparent" // only where there was a span
)

// Config is what a Publisher may be told. The zero value works.
type Config struct {
	// Subject says where a message goes. A stream must take in that subject.
	// Default: its Topic.
	Subject func(outbox.Message) string
}

// Publisher is an outbox.Publisher into JetStream. It may be used from any
// goroutine; the connection is the caller's, who closes it after the relay has
// stopped.
type Publisher struct {
	js     jetstream.JetStream
	config Config
}

var _ outbox.Publisher = (*Publisher)(nil)

// New returns a Publisher on a JetStream context.
func New(js jetstream.JetStream, config Config) (*Publisher, error) {
	if js == nil {
		return nil, errors.New("natspub: a Publisher needs a JetStream context; see jetstream.New")
	}
	if config.Subject == nil {
		config.Subject = func(m outbox.Message) string { return m.Topic }
	}
	return &Publisher{js, config}, nil
}

// Publish stores a message in the stream of its subject. Without such a stream it
// fails and may be tried again; a subject that cannot be, and a payload that is
// larger than the server takes, are permanent (outbox.Permanent).
func (p *Publisher) Publish(ctx context.Context, m outbox.Message) error {
	msg := nats.NewMsg(p.config.Subject(m))
	msg.Data = m.Payload
	for name, value := range m.Headers {
		msg.Header.Set(name, value)
	}
	msg.Header.Set(HeaderTopic, m.Topic)
	msg.Header.Set(HeaderQueue, m.Queue)
	if m.Traceparent != "" {
		msg.Header.Set(HeaderTraceparent, m.Traceparent)
	}
	_, err := p.js.PublishMsg(ctx, msg, jetstream.WithMsgID(m.ID))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrBadHeaderMsg):
		return outbox.Permanent(fmt.Errorf("natspub: subject %q: %w", msg.Subject, err))
	default:
		return fmt.Errorf("natspub: subject %q: %w", msg.Subject, err)
	}
}
