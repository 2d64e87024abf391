package roles_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/retention"
	"github.com/postlane-go/postlane/outbox"
)

// The owner migrates, down and up; what the schema then has anew is granted by the file.
func TestTheOwnerMigrates(t *testing.T) {
	t.Parallel()
	d := setup(t)
	conn := d.as("owner").Config().ConnConfig
	for range 4 {
		undone, err := migrate.Down(d.ctx, conn, db.Schema(), migrate.Config{})
		d.is.NoErr(err)
		d.is.True(undone != "")
	}
	applied, err := migrate.Up(d.ctx, conn, db.Schema(), migrate.Config{})
	d.is.NoErr(err)
	d.is.Equal(len(applied), 4)
	d.grant()
	d.is.NoErr(migrate.Check(d.ctx, d.as("operator"), db.Schema()))
	d.enqueue(d.as("app"), 1)
	var others int
	d.is.NoErr(d.QueryRow(d.ctx, `SELECT count(*) FROM pg_class WHERE relnamespace = 'postlane'::regnamespace AND pg_get_userbyid(relowner) <> $1`, d.prefix+"owner").Scan(&others))
	d.is.Equal(others, 0)
}

// enqueue writes n events of acme, of distinct assets, as a role.
func (d *database) enqueue(pool *pgxpool.Pool, n int) []delivery.Enqueued {
	d.t.Helper()
	events := make([]delivery.Event, n)
	for i := range events {
		events[i] = delivery.Event{Tenant: "acme", Type: "thing.changed", Asset: fmt.Sprint("asset ", i), Payload: []byte("{}")}
	}
	var enqueued []delivery.Enqueued
	d.is.NoErr(pgx.BeginFunc(d.ctx, pool, func(tx pgx.Tx) (err error) {
		if err := delivery.Serialize(d.ctx, tx, "asset 0"); err != nil {
			return err
		}
		enqueued, err = delivery.Enqueue(d.ctx, tx, events...)
		return err
	}))
	return enqueued
}

func TestAnApplicationEnqueuesAndStages(t *testing.T) {
	t.Parallel()
	d := setup(t)
	_, _, err := d.store(d.Pool).CreateSubscription(d.ctx, "acme", delivery.Settings{URL: "http://127.0.0.1:8099/"})
	d.is.NoErr(err)
	app := d.as("app")
	d.enqueue(app, 1)
	d.enqueue(app, 3)
	again := delivery.Event{ID: "one", Tenant: "acme", Type: "a", Payload: []byte("{}")}
	for want := range 2 { // the second time it is a duplicate, which has to be looked up
		d.is.NoErr(pgx.BeginFunc(d.ctx, app, func(tx pgx.Tx) error {
			enqueued, err := delivery.Enqueue(d.ctx, tx, again)
			if err == nil && enqueued[0].Duplicate != (want == 1) {
				err = errors.New("wrong about what is there")
			}
			return err
		}))
	}
	d.is.NoErr(pgx.BeginFunc(d.ctx, app, func(tx pgx.Tx) error {
		_, err := outbox.Stage(d.ctx, tx, outbox.Message{Topic: "mail"}, outbox.Message{Topic: "mail", RunAt: time.Now().Add(time.Hour), IdempotencyKey: "once"})
		return err
	}))
	for _, call := range []string{
		"postlane.enqueue('acme', 'a.b', '{}'::jsonb, id => 'two')", "postlane.enqueue('acme', 'a.b', '{}'::text)", "postlane.stage('mail', '{}'::bytea)",
		"postlane.stage('mail', '{}'::json, run_at => now() + interval '1 hour')",
	} {
		_, err := app.Exec(d.ctx, "SELECT "+call)
		d.is.NoErr(err)
	}
	// A call of several of which one cannot be: nothing of it stays, since what was written
	// before cannot be taken back without the right to delete.
	again.Type = "another"
	err = pgx.BeginFunc(d.ctx, app, func(tx pgx.Tx) error {
		_, err := delivery.Enqueue(d.ctx, tx, delivery.Event{ID: "before", Tenant: "acme", Type: "a", Payload: []byte("{}")}, again)
		var conflict *delivery.ConflictError
		d.is.True(errors.As(err, &conflict))
		return nil
	})
	d.is.True(err != nil) // the commit is a rollback
	var stayed int
	d.is.NoErr(d.QueryRow(d.ctx, "SELECT count(*) FROM postlane.events WHERE id = 'before'").Scan(&stayed))
	d.is.Equal(stayed, 0)
}

// A dispatcher delivers, retries, gives up and disables, reclaims what a silent one left,
// and tidies up.
func TestADispatcherDelivers(t *testing.T) {
	t.Parallel()
	d := setup(t)
	var status atomic.Int64
	status.Store(200)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	t.Cleanup(endpoint.Close)
	operator, app, pool := d.store(d.as("operator")), d.as("app"), d.as("dispatcher")
	settings := delivery.Settings{URL: endpoint.URL, MaxAttempts: 2, DisableAfter: 3, OnDead: delivery.Hold, Headers: map[string]string{"x-a": "b"}, V1a: true}
	sub, _, err := operator.CreateSubscription(d.ctx, "acme", settings)
	d.is.NoErr(err)
	listener, _, err := operator.CreateSubscription(d.ctx, "acme", delivery.Settings{URL: endpoint.URL, EventTypes: []string{"postlane.*"}})
	d.is.NoErr(err)
	d.enqueue(app, 5)
	store := d.store(pool)
	left, err := store.Claim(d.ctx, delivery.ClaimRequest{Claimant: "silent", Max: 1, MaxInFlight: 10, Lease: time.Minute})
	d.is.NoErr(err)
	d.is.Equal(len(left), 1)
	_, err = d.Exec(d.ctx, "UPDATE postlane.leases SET lease_until = now() - interval '1 minute'") // it went silent
	d.is.NoErr(err)

	snd, err := sender.New(sender.Config{Guard: d.guard()})
	d.is.NoErr(err)
	t.Cleanup(snd.Close)
	dispatcher, err := delivery.New(delivery.Config{
		Store: store, Sender: snd, Poll: 10 * time.Millisecond, Reclaim: 10 * time.Millisecond, Logger: d.logger(),
	})
	d.is.NoErr(err)
	ctx, stop := context.WithCancel(d.ctx)
	done := make(chan error, 1)
	go func() { done <- dispatcher.Run(ctx) }()
	d.until("SELECT count(*) = 5 FROM postlane.settled WHERE state = 'delivered'")
	// Failures count where a delivery dies: each at its second attempt.
	status.Store(500)
	d.enqueue(app, 3)
	d.until("SELECT count(*) = 3 FROM postlane.deliveries WHERE attempts = 1 AND due_at IS NOT NULL")
	_, err = d.Exec(d.ctx, "UPDATE postlane.deliveries SET due_at = now()")
	d.is.NoErr(err)
	d.until(fmt.Sprintf("SELECT state = 'disabled' FROM postlane.subscriptions WHERE id = %d", sub.ID))
	d.until("SELECT count(*) = 3 FROM postlane.deliveries WHERE held_at IS NOT NULL")
	d.until("SELECT count(*) = 7 FROM postlane.events WHERE type LIKE 'postlane.%'")
	d.is.NoErr(operator.DeleteSubscription(d.ctx, sub.ID))
	d.is.NoErr(operator.DeleteSubscription(d.ctx, listener.ID))
	d.until("SELECT count(*) = 0 FROM postlane.deliveries") // discarded
	stop()
	d.is.NoErr(<-done)
	d.nothingRefused()
	_, err = store.OldestDue(d.ctx)
	d.is.NoErr(err)
	_, err = store.ActiveSubscriptions(d.ctx)
	d.is.NoErr(err)
}

// until waits for a question to be answered with yes.
func (d *database) until(question string) {
	d.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		var yes bool
		d.is.NoErr(d.QueryRow(d.ctx, question).Scan(&yes))
		if yes {
			return
		}
		d.nothingRefused()
	}
}

func TestARelayPublishes(t *testing.T) {
	t.Parallel()
	d := setup(t)
	app, pool := d.as("app"), d.as("relay")
	d.is.NoErr(pgx.BeginFunc(d.ctx, app, func(tx pgx.Tx) error {
		_, err := outbox.Stage(d.ctx, tx,
			outbox.Message{Topic: "good", Queue: "a"}, outbox.Message{Topic: "bad", Queue: "b", MaxAttempts: 2}, outbox.Message{Topic: "good", Queue: "b"},
			outbox.Message{Topic: "good", Queue: "c", RunAt: time.Now().Add(time.Hour)})
		return err
	}))
	lease := 10 * time.Second
	store, err := outbox.NewPostgres(pool, outbox.StoreConfig{Lease: &lease})
	d.is.NoErr(err)
	silent, err := store.Claim(d.ctx, 1)
	d.is.NoErr(err)
	d.is.Equal(len(silent), 1)
	d.is.NoErr(store.Renew(d.ctx, silent...))
	_, err = d.Exec(d.ctx, "UPDATE postlane.outbox_leases SET lease_until = now() - interval '1 minute'")
	d.is.NoErr(err)
	relay, err := outbox.NewRelay(outbox.RelayConfig{
		Store: store, Poll: 10 * time.Millisecond, Backoff: func(int) time.Duration { return time.Millisecond }, Exhausted: outbox.Park, Logger: d.logger(),
		Publisher: outbox.PublisherFunc(func(_ context.Context, m outbox.Message) error {
			if m.Topic == "bad" {
				return errors.New("the broker says no")
			}
			return nil
		}),
	})
	d.is.NoErr(err)
	ctx, stop := context.WithCancel(d.ctx)
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	d.until("SELECT count(*) = 2 FROM postlane.outbox_published")
	d.until("SELECT count(*) = 1 FROM postlane.outbox_parked")
	_, err = d.Exec(d.ctx, "UPDATE postlane.outbox_scheduled SET due_at = now()")
	d.is.NoErr(err)
	d.until("SELECT count(*) = 3 FROM postlane.outbox_published")
	_, err = relay.Pending(d.ctx)
	d.is.NoErr(err)
	stop()
	d.is.NoErr(<-done)
	d.nothingRefused()
}

// An operator does all that the API, the console and the command line do.
func TestAnOperatorOperates(t *testing.T) {
	t.Parallel()
	d := setup(t)
	pool := d.as("operator")
	store, dispatcher := d.store(pool), d.store(d.as("dispatcher"))
	sub, _, err := store.CreateSubscription(d.ctx, "acme", delivery.Settings{URL: "http://127.0.0.1:8099/", MaxAttempts: 1})
	d.is.NoErr(err)
	enqueued := d.enqueue(pool, 6)
	die := func() (ids []delivery.ID) {
		claims, err := dispatcher.Claim(d.ctx, delivery.ClaimRequest{Claimant: "test", Max: 2, MaxInFlight: 10, Lease: time.Minute})
		d.is.NoErr(err)
		results := make([]delivery.Result, len(claims))
		for i := range claims {
			ids = append(ids, claims[i].ID())
			results[i] = delivery.Result{Claim: &claims[i], Verdict: delivery.Failed, Attempt: delivery.AttemptEvidence{Started: time.Now(), Outcome: "http_status", Status: 500, Answered: true}}
		}
		_, err = dispatcher.Settle(d.ctx, results)
		d.is.NoErr(err)
		return ids
	}
	dead := die()
	d.is.NoErr(store.ReviveBy(d.ctx, sub.ID, dead[0], "somebody"))
	d.is.NoErr(store.Discard(d.ctx, sub.ID, dead[1], "because"))
	d.is.NoErr(store.Discard(d.ctx, sub.ID, delivery.ID(enqueued[5].Seq), "pending"))
	_, err = store.UpdateSubscription(d.ctx, sub.ID, func(s *delivery.Settings) error {
		s.V1a, s.OnDead, s.EventTypes, s.Headers = true, delivery.Hold, []string{"thing.*"}, map[string]string{"x-a": "b"}
		return nil
	})
	d.is.NoErr(err)
	d.is.NoErr(store.ReleaseHeld(d.ctx, sub.ID, die()[0])) // the other one goes on holding its stream
	_, err = store.CountDead(d.ctx, sub.ID, delivery.DeadLetters{}, 0)
	d.is.NoErr(err)
	_, err = store.ReviveBatch(d.ctx, sub.ID, delivery.DeadLetters{}, 0, 10, "somebody")
	d.is.NoErr(err)
	for _, order := range []func(context.Context, delivery.SubscriptionID, delivery.Filter, delivery.ID, int) (delivery.Page, error){store.Deliveries, store.DeliveriesOldest} {
		_, err = order(d.ctx, sub.ID, delivery.Filter{EventType: "thing.changed"}, 0, 10)
		d.is.NoErr(err)
	}
	for _, f := range []func() error{
		func() error { _, err := store.Attempts(d.ctx, sub.ID, dead[0]); return err },
		func() error { _, err := store.Revivals(d.ctx, sub.ID, dead[0]); return err },
		func() error { _, err := store.Streams(d.ctx, sub.ID, nil, 10); return err },
		func() error { _, err := store.Counts(d.ctx, 0); return err },
		func() error { _, err := store.Event(d.ctx, "acme", enqueued[0].ID); return err },
		func() error { _, err := store.RotateSecret(d.ctx, sub.ID, time.Hour); return err },
		func() error { _, err := store.RotateSecret(d.ctx, sub.ID, 0); return err },
		func() error { _, err := store.Pause(d.ctx, sub.ID, "a while"); return err },
		func() error { _, err := store.Enable(d.ctx, sub.ID); return err },
		func() error { _, err := store.StaleSecrets(d.ctx); return err },
		func() error { _, err := store.Reencrypt(d.ctx); return err },
		func() error {
			_, err := store.PutEventType(d.ctx, delivery.EventType{Tenant: "acme", Name: "a.b"})
			return err
		},
		func() error { _, err := store.ValidatedEventTypes(d.ctx, "acme"); return err },
		func() error { return store.DeleteEventType(d.ctx, "acme", "a.b") },
	} {
		d.is.NoErr(f())
	}
	d.operatesKeys(pool)
	d.operatesOutbox(pool)
	d.is.NoErr(store.DeleteSubscription(d.ctx, sub.ID))
}

func (d *database) operatesKeys(pool *pgxpool.Pool) {
	d.t.Helper()
	k := keys.New(pool, "")
	made, text, err := k.Create(d.ctx, "a key", "acme", keys.Read)
	d.is.NoErr(err)
	_, err = k.Find(d.ctx, text)
	d.is.NoErr(err)
	_, err = k.List(d.ctx, "", "", 10)
	d.is.NoErr(err)
	_, err = k.Revoke(d.ctx, made.ID)
	d.is.NoErr(err)
	log := audit.New(pool)
	e := &audit.Entry{Actor: "cli", ActorName: "somebody", Action: "test", Target: "x"}
	d.is.NoErr(log.Begin(d.ctx, e))
	e.Tenant, e.Detail, e.Outcome = "acme", "more", "ok"
	d.is.NoErr(log.End(d.ctx, e))
	d.is.NoErr(log.Record(d.ctx, &audit.Entry{Actor: "cli", Action: "test"}))
	_, err = log.List(d.ctx, "acme", 1<<62, 10)
	d.is.NoErr(err)
}

func (d *database) operatesOutbox(pool *pgxpool.Pool) {
	d.t.Helper()
	d.is.NoErr(pgx.BeginFunc(d.ctx, d.as("app"), func(tx pgx.Tx) error {
		_, err := outbox.Stage(d.ctx, tx, outbox.Message{Topic: "t", ID: "parked", Queue: "a"}, outbox.Message{Topic: "t", ID: "waits", Queue: "b"})
		return err
	}))
	relay, err := outbox.NewPostgres(d.as("relay"), outbox.StoreConfig{})
	d.is.NoErr(err)
	claims, err := relay.Claim(d.ctx, 2)
	d.is.NoErr(err)
	for i := range claims {
		d.is.NoErr(relay.Fail(d.ctx, outbox.Failure{Claim: claims[i], Error: "no", Park: claims[i].ID == "parked", Delay: time.Hour}))
	}
	store, err := outbox.NewPostgres(pool, outbox.StoreConfig{})
	d.is.NoErr(err)
	for _, state := range []outbox.State{outbox.StatePending, outbox.StateParked} {
		list, err := store.List(d.ctx, outbox.ListRequest{State: state})
		d.is.NoErr(err)
		d.is.Equal(len(list), 1)
	}
	_, err = store.Pending(d.ctx)
	d.is.NoErr(err)
	_, err = store.Retry(d.ctx, "waits")
	d.is.NoErr(err)
	_, err = store.RetryParked(d.ctx, "", 10)
	d.is.NoErr(err)
}

func TestRetentionRemoves(t *testing.T) {
	t.Parallel()
	d := setup(t)
	store := d.store(d.Pool)
	sub, _, err := store.CreateSubscription(d.ctx, "acme", delivery.Settings{URL: "http://127.0.0.1:8099/"})
	d.is.NoErr(err)
	enqueued := d.enqueue(d.Pool, 2)
	for _, e := range enqueued {
		d.is.NoErr(store.Discard(d.ctx, sub.ID, delivery.ID(e.Seq), "over"))
	}
	_, err = store.RotateSecret(d.ctx, sub.ID, 0)
	d.is.NoErr(err)
	_, err = d.Exec(d.ctx, `
		INSERT INTO postlane.audit (actor, actor_name, action, at) VALUES ('a', 'a', 'a', now() - interval '1 year');
		INSERT INTO postlane.outbox_published (seq, claimed_at, published_at, attempts, queue, id, claimant) VALUES (1, now(), now() - interval '1 year', 1, 'q', 'm', 'c');
		INSERT INTO postlane.outbox_messages (seq, id, queue, topic, max_attempts, payload) VALUES (1, 'm', 'q', 't', 1, '');
		INSERT INTO postlane.console_sessions (hash, key_hash, expires_at) VALUES (sha256('a'), sha256('b'), now() - interval '1 year');
		UPDATE postlane.subscription_secrets SET expires_at = expires_at - interval '1 year';
		UPDATE postlane.settled SET created_at = now() - interval '1 year', settled_at = now() - interval '1 year';
		UPDATE postlane.events SET created_at = now() - interval '1 year'`)
	d.is.NoErr(err)
	pool := d.as("retention")
	removed, err := retention.Once(d.ctx, retention.Config{Pool: pool, Store: d.store(pool), Keep: retention.Keep{
		Settled: time.Hour, Dead: time.Hour, Events: time.Hour, Messages: time.Hour, Audit: time.Hour,
	}})
	d.is.NoErr(err)
	d.is.Equal([]int64{removed.Deliveries, removed.Events, removed.Secrets, removed.Messages, removed.Audit, removed.Sessions}, []int64{2, 2, 1, 1, 1, 1})
}
