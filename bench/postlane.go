package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/outbox"
)

// quiet is a logger of what should not happen during a measurement.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func migrateUp(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool.Config().ConnConfig, db.Schema(), migrate.Config{})
	return err
}

// run runs what ends with its context, until stop.
func run(ctx context.Context, what func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- what(ctx) }()
	return func() error { cancel(); return <-done }
}

// outboxPeer is package outbox: a relay that claims 100 at a time.
type outboxPeer struct{ m *measurement }

func newOutbox(m *measurement) (peer, error) { return &outboxPeer{m}, nil }

func (p *outboxPeer) version() string { return "this source" }
func (p *outboxPeer) conns() int      { return 8 }

func (p *outboxPeer) setup(ctx context.Context, pool *pgxpool.Pool) error {
	return migrateUp(ctx, pool)
}

func (p *outboxPeer) message(body []byte) outbox.Message {
	return outbox.Message{Topic: "asset.updated", Queue: fmt.Sprint("queue ", number(body, "sub")%int64(p.m.Spread)), Payload: body}
}

func (p *outboxPeer) stage(ctx context.Context, tx pgx.Tx, body []byte) error {
	_, err := outbox.Stage(ctx, tx, p.message(body))
	return err
}

func (p *outboxPeer) bulk(ctx context.Context, pool *pgxpool.Pool, bodies [][]byte) error {
	messages := make([]outbox.Message, len(bodies))
	for i, b := range bodies {
		messages[i] = p.message(b)
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := outbox.Stage(ctx, tx, messages...)
		return err
	})
}

func (p *outboxPeer) work(ctx context.Context, pool *pgxpool.Pool, h handler) (func() error, error) {
	store, err := outbox.NewPostgres(pool, outbox.StoreConfig{})
	if err != nil {
		return nil, err
	}
	relay, err := outbox.NewRelay(outbox.RelayConfig{
		Store: store, Batch: 100, Listen: pool.Config().ConnConfig, Logger: quiet(),
		Publisher: outbox.PublisherFunc(func(ctx context.Context, m outbox.Message) error { return h(ctx, m.Payload) }),
	})
	if err != nil {
		return nil, err
	}
	return run(ctx, relay.Run), nil
}

func (p *outboxPeer) remaining(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	return count(ctx, pool, "SELECT count(*) FROM postlane.outbox_pending")
}

// subscriptions is how many endpoints the events of a delivery measurement go to,
// each that of a tenant of its own.
const subscriptions = 100

// deliveryPeer is package delivery: the dispatcher with its own sender.
type deliveryPeer struct {
	m     *measurement
	guard *guard.Guard
}

func newDelivery(m *measurement) (peer, error) {
	g, err := guard.New(guard.Policy{Development: true}) // the endpoint is on loopback
	return &deliveryPeer{m, g}, err
}

func (p *deliveryPeer) version() string { return "this source" }
func (p *deliveryPeer) conns() int      { return 16 }

func (p *deliveryPeer) store(pool *pgxpool.Pool) (*delivery.Store, error) {
	return delivery.NewStore(pool, delivery.StoreConfig{Guard: p.guard})
}

func (p *deliveryPeer) setup(ctx context.Context, pool *pgxpool.Pool) error {
	if err := migrateUp(ctx, pool); err != nil {
		return err
	}
	store, err := p.store(pool)
	if err != nil {
		return err
	}
	for i := range int64(subscriptions) {
		if _, _, err := store.CreateSubscription(ctx, tenant(i), delivery.Settings{URL: fmt.Sprintf("http://127.0.0.1/%d", i)}); err != nil {
			return err
		}
	}
	return nil
}

func tenant(seq int64) string { return fmt.Sprint("tenant ", seq%subscriptions) }

func event(body []byte) delivery.Event {
	return delivery.Event{
		Tenant: tenant(number(body, "seq")), Type: "asset.updated", Asset: fmt.Sprint("asset ", number(body, "sub")), Payload: body,
	}
}

func (p *deliveryPeer) stage(ctx context.Context, tx pgx.Tx, body []byte) error {
	_, err := delivery.Enqueue(ctx, tx, event(body))
	return err
}

func (p *deliveryPeer) bulk(ctx context.Context, pool *pgxpool.Pool, bodies [][]byte) error {
	events := make([]delivery.Event, len(bodies))
	for i, b := range bodies {
		events[i] = event(b)
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := delivery.Enqueue(ctx, tx, events...)
		return err
	})
}

func (p *deliveryPeer) work(ctx context.Context, pool *pgxpool.Pool, h handler) (func() error, error) {
	// The template of the backlog was made for another endpoint.
	if _, err := pool.Exec(ctx, "UPDATE postlane.subscriptions SET url = regexp_replace(url, '^http://[^/]+', $1)", p.m.endpoint); err != nil {
		return nil, err
	}
	store, err := p.store(pool)
	if err != nil {
		return nil, err
	}
	s, err := sender.New(sender.Config{Guard: p.guard, IdleConnsPerHost: p.m.Concurrency, IdleConns: 2 * p.m.Concurrency})
	if err != nil {
		return nil, err
	}
	config := delivery.Config{Store: store, Sender: s, MaxInFlight: p.m.Concurrency, Logger: quiet()}
	config.Observer.Settled = func(o delivery.Observation) {
		if o.State == delivery.SettledDelivered {
			_ = h(ctx, nil)
		}
	}
	dispatcher, err := delivery.New(config)
	if err != nil {
		return nil, err
	}
	stop := run(ctx, dispatcher.Run)
	return func() error {
		defer s.Close()
		return stop()
	}, nil
}

func (p *deliveryPeer) remaining(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	return count(ctx, pool, "SELECT count(*) FROM postlane.deliveries")
}
