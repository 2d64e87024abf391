package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// watermillPeer is watermill-sql, with as many topics as the messages are spread over,
// and the workers are subscribers of them in turn. Profiles: "queue" is its
// PostgreSQLQueueSchema, which deletes on ack; "offsets" its default, with a consumer
// group's offset.
type watermillPeer struct{ m *measurement }

func newWatermill(m *measurement) (peer, error) { return &watermillPeer{m}, nil }

func (p *watermillPeer) version() string {
	return moduleVersion("github.com/ThreeDotsLabs/watermill-sql/v4")
}
func (p *watermillPeer) conns() int  { return p.m.Concurrency + 5 } // each subscriber holds one
func (p *watermillPeer) queue() bool { return p.m.Profile == "queue" }

func (p *watermillPeer) topic(i int64) string { return fmt.Sprint("bench_", i%int64(p.m.Spread)) }

func (p *watermillPeer) schema() wmsql.SchemaAdapter {
	if p.queue() {
		return wmsql.PostgreSQLQueueSchema{}
	}
	return wmsql.DefaultPostgreSQLSchema{}
}

func (p *watermillPeer) subscriber(pool *pgxpool.Pool) (*wmsql.Subscriber, error) {
	config := wmsql.SubscriberConfig{SchemaAdapter: p.schema(), OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{}}
	if p.queue() {
		config.OffsetsAdapter = wmsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true}
	}
	return wmsql.NewSubscriber(wmsql.BeginnerFromPgx(pool), config, watermill.NopLogger{})
}

func (p *watermillPeer) setup(_ context.Context, pool *pgxpool.Pool) error {
	subscriber, err := p.subscriber(pool)
	if err != nil {
		return err
	}
	for i := range int64(p.m.Spread) {
		if err := subscriber.SubscribeInitialize(p.topic(i)); err != nil {
			return err
		}
	}
	return subscriber.Close()
}

func (p *watermillPeer) publish(tx pgx.Tx, topic string, bodies ...[]byte) error {
	publisher, err := wmsql.NewPublisher(wmsql.TxFromPgx(tx), wmsql.PublisherConfig{SchemaAdapter: p.schema()}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	messages := make([]*message.Message, len(bodies))
	for i, b := range bodies {
		messages[i] = message.NewMessage(watermill.NewUUID(), b)
	}
	return publisher.Publish(topic, messages...)
}

func (p *watermillPeer) stage(_ context.Context, tx pgx.Tx, body []byte) error {
	return p.publish(tx, p.topic(number(body, "sub")), body)
}

func (p *watermillPeer) bulk(ctx context.Context, pool *pgxpool.Pool, bodies [][]byte) error {
	byTopic := map[string][][]byte{}
	for _, b := range bodies {
		topic := p.topic(number(b, "sub"))
		byTopic[topic] = append(byTopic[topic], b)
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for topic, list := range byTopic {
			if err := p.publish(tx, topic, list...); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *watermillPeer) work(ctx context.Context, pool *pgxpool.Pool, h handler) (func() error, error) {
	var workers sync.WaitGroup
	subscribers := make([]*wmsql.Subscriber, p.m.Concurrency)
	for i := range subscribers {
		subscriber, err := p.subscriber(pool)
		if err != nil {
			return nil, err
		}
		messages, err := subscriber.Subscribe(ctx, p.topic(int64(i)))
		if err != nil {
			return nil, err
		}
		subscribers[i] = subscriber
		workers.Go(func() {
			for m := range messages {
				if h(m.Context(), m.Payload) != nil {
					m.Nack()
				} else {
					m.Ack()
				}
			}
		})
	}
	return func() error {
		var closing sync.WaitGroup
		for _, s := range subscribers {
			closing.Go(func() { _ = s.Close() })
		}
		closing.Wait()
		workers.Wait()
		return nil
	}, nil
}

func (p *watermillPeer) remaining(ctx context.Context, pool *pgxpool.Pool) (total int64, err error) {
	for i := range int64(p.m.Spread) {
		query := fmt.Sprintf(`SELECT count(*) FROM "watermill_%s"`, p.topic(i))
		if !p.queue() {
			query += fmt.Sprintf(` m WHERE (m.transaction_id, m."offset") > (
				coalesce((SELECT last_processed_transaction_id FROM "watermill_offsets_%[1]s" WHERE consumer_group = ''), '0'::xid8),
				coalesce((SELECT offset_acked FROM "watermill_offsets_%[1]s" WHERE consumer_group = ''), 0))`, p.topic(i))
		}
		n, err := count(ctx, pool, query)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
