// Package deliverypub publishes outbox messages as webhook events: a message becomes
// an event of package delivery, and reaches every subscription that matches.
//
// A message is one event, however often it is published: the event's id is the
// message's, and delivery takes an id once. So between the two there are no
// duplicates, also not after a crash.
package deliverypub

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/traceparent"
	"github.com/postlane-go/postlane/outbox"
)

// HeaderContentType is the header of a message that becomes the event's content type.
const HeaderContentType = "content-type"

// Config is what a Publisher may be told. The zero value works.
type Config struct {
	// Event says what event a message becomes; its id is set to the message's
	// afterwards. An error is permanent.
	// Default: Event.
	Event func(outbox.Message) (delivery.Event, error)
}

// Event is the default mapping: the type is the message's topic, the asset its queue
// (none for outbox.DefaultQueue), the payload the same bytes, the trace the same.
func Event(m outbox.Message) (delivery.Event, error) {
	e := delivery.Event{Tenant: m.Tenant, Type: m.Topic, Asset: m.Queue, ContentType: m.Headers[HeaderContentType], Payload: m.Payload}
	if m.Queue == outbox.DefaultQueue {
		e.Asset = ""
	}
	if _, ok := traceparent.Parse(m.Traceparent); ok {
		e.Traceparent = m.Traceparent
	}
	return e, nil
}

// Publisher is an outbox.BatchPublisher into package delivery. It may be used from
// any goroutine.
type Publisher struct {
	pool   *pgxpool.Pool
	config Config
}

var _ outbox.BatchPublisher = (*Publisher)(nil)

// New returns a Publisher that enqueues in transactions of pool, whose database need
// not be the one that messages are staged in.
func New(pool *pgxpool.Pool, config Config) (*Publisher, error) {
	if pool == nil {
		return nil, errors.New("deliverypub: a Publisher needs a pool")
	}
	if config.Event == nil {
		config.Event = Event
	}
	return &Publisher{pool, config}, nil
}

// Publish enqueues a message as an event. What cannot be an event (delivery.ErrInvalid)
// and an id that stands for another one (delivery.ErrConflict) are permanent.
func (p *Publisher) Publish(ctx context.Context, m outbox.Message) error {
	_, err := p.PublishBatch(ctx, []outbox.Message{m})
	return err
}

// PublishBatch enqueues messages in one transaction, or those before the first that
// cannot be in one and that one not.
func (p *Publisher) PublishBatch(ctx context.Context, messages []outbox.Message) (published int, err error) {
	events := make([]delivery.Event, 0, len(messages))
	var mapping error // of the message behind events
	for _, m := range messages {
		e, err := p.config.Event(m)
		if err != nil {
			mapping = outbox.Permanent(fmt.Errorf("deliverypub: %w", err))
			break
		}
		e.ID = m.ID
		events = append(events, e)
	}
	if err := p.enqueue(ctx, events); err == nil {
		return len(events), mapping
	} else if len(events) == 1 {
		return 0, err
	}
	for i := range events { // one of them is to blame
		if err := p.enqueue(ctx, events[i:i+1]); err != nil {
			return i, err
		}
	}
	return len(events), mapping
}

func (p *Publisher) enqueue(ctx context.Context, events []delivery.Event) error {
	if len(events) == 0 {
		return nil
	}
	err := pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		_, err := delivery.Enqueue(ctx, tx, events...)
		return err
	})
	if errors.Is(err, delivery.ErrInvalid) || errors.Is(err, delivery.ErrConflict) {
		return outbox.Permanent(err)
	}
	return err
}
