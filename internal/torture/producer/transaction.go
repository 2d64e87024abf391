package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/torture/journal"
	"github.com/postlane-go/postlane/outbox"
)

// transaction is one that is being written.
type transaction struct {
	*writer

	intent journal.Intent
}

// write does what a transaction does before its end, and says whether it is to commit.
func (t *transaction) write(ctx context.Context, tx pgx.Tx) (commit bool, err error) {
	if _, err := tx.Exec(ctx, "INSERT INTO torture.transactions (id) VALUES ($1)", t.intent.Tx); err != nil {
		return false, err
	}
	commit = true
	switch n := t.random.IntN(100); {
	case n < 40:
		for range 1 + t.random.IntN(3) {
			err = errors.Join(err, t.enqueue(ctx, tx, t.draw(1)))
		}
	case n < 55:
		err = t.enqueue(ctx, tx, t.draw(2+t.random.IntN(12)))
	case n < 65:
		err = t.stage(ctx, tx)
	case n < 75:
		commit, err = false, t.enqueue(ctx, tx, t.draw(1+t.random.IntN(4)))
	case n < 85:
		err = t.savepoint(ctx, tx)
	case n < 93:
		err = t.serialized(ctx, tx)
	default: // late: others that begin now commit before
		err = t.enqueue(ctx, tx, t.draw(1+t.random.IntN(3)))
		t.pause(ctx, time.Duration(500+t.random.IntN(4500))*time.Millisecond)
	}
	return commit, err
}

// draw makes up events. Half of them have ids of their own.
func (t *transaction) draw(n int) []journal.Event {
	events := make([]journal.Event, n)
	for i := range events {
		e := &events[i]
		e.Type = Types[t.random.IntN(len(Types))]
		if t.random.IntN(10) > 0 {
			e.Asset = fmt.Sprintf("asset-%d", t.random.IntN(t.config.Assets))
		}
		e.Nonce, e.Size, e.Route = t.random.Uint64(), 60+t.random.IntN(400), journal.Direct
		if t.random.IntN(200) == 0 {
			e.Size = 70_000 // read apart from the claim
		}
		if t.random.IntN(2) == 0 {
			e.ID = fmt.Sprintf("%s-%x", t.intent.Tx, e.Nonce)
		}
	}
	return events
}

// enqueue writes events in one call, and notes that the transaction has them.
func (t *transaction) enqueue(ctx context.Context, tx pgx.Tx, events []journal.Event) error {
	if err := t.call(ctx, tx, events); err != nil {
		return err
	}
	t.intent.Events = append(t.intent.Events, events...)
	return nil
}

func (t *transaction) call(ctx context.Context, tx pgx.Tx, events []journal.Event) error {
	list := make([]delivery.Event, len(events))
	for i, e := range events {
		list[i] = delivery.Event{ID: e.ID, Tenant: t.config.Tenant, Type: e.Type, Asset: e.Asset, Payload: journal.Payload(e.Nonce, e.Size)}
	}
	enqueued, err := delivery.Enqueue(ctx, tx, list...)
	for i := range enqueued {
		events[i].ID = enqueued[i].ID
	}
	return err
}

// savepoint writes some events, takes the next ones back, and writes more.
func (t *transaction) savepoint(ctx context.Context, tx pgx.Tx) error {
	if err := t.enqueue(ctx, tx, t.draw(1+t.random.IntN(2))); err != nil {
		return err
	}
	undone := t.draw(1 + t.random.IntN(3))
	inner, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(t.call(ctx, inner, undone), inner.Rollback(ctx)); err != nil {
		return err
	}
	t.intent.Undone = append(t.intent.Undone, undone...)
	return t.enqueue(ctx, tx, t.draw(1+t.random.IntN(2)))
}

// serialized writes events of one asset under its lock, with the asset's version.
func (t *transaction) serialized(ctx context.Context, tx pgx.Tx) error {
	events := t.draw(1 + t.random.IntN(3))
	asset := fmt.Sprintf("asset-%d", t.random.IntN(t.config.Assets))
	if err := delivery.Serialize(ctx, tx, asset); err != nil {
		return err
	}
	var version int64
	err := tx.QueryRow(ctx, `INSERT INTO torture.assets (id, version) VALUES ($1, 1)
		ON CONFLICT (id) DO UPDATE SET version = assets.version + 1 RETURNING version`, asset).Scan(&version)
	if err != nil {
		return err
	}
	for i := range events {
		events[i].Asset, events[i].Version = asset, version
	}
	if err := t.enqueue(ctx, tx, events); err != nil {
		return err
	}
	t.pause(ctx, time.Duration(t.random.IntN(50))*time.Millisecond)
	return nil
}

// stage writes events as messages of the outbox, which relays turn into events.
func (t *transaction) stage(ctx context.Context, tx pgx.Tx) error {
	events := t.draw(1 + t.random.IntN(5))
	messages := make([]outbox.Message, len(events))
	for i := range events {
		e := &events[i]
		e.Route = journal.Staged
		messages[i] = outbox.Message{ID: e.ID, Tenant: t.config.Tenant, Topic: e.Type, Queue: e.Asset, Payload: journal.Payload(e.Nonce, e.Size)}
	}
	staged, err := outbox.Stage(ctx, tx, messages...)
	for i := range staged {
		events[i].ID = staged[i].ID
	}
	t.intent.Events = append(t.intent.Events, events...)
	return err
}
