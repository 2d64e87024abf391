package delivery_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/signing"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/pgtest/server"
)

// An event is written in the transaction that changes the business row, and is sent to
// the endpoints that subscribed.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	pool, drop := exampleDatabase() // a *pgxpool.Pool; the schema is in package db
	defer drop()
	endpoint := newEndpoint()
	defer endpoint.Close()

	// Development allows http and loopback; leave it out in production.
	local, err := guard.New(guard.Policy{Development: true})
	check(err)
	store, err := delivery.NewStore(pool, delivery.StoreConfig{Guard: local})
	check(err)
	_, secret, err := store.CreateSubscription(ctx, "acme", delivery.Settings{
		URL: endpoint.URL, EventTypes: []string{"invoice.*"},
	})
	check(err)
	endpoint.secrets <- secret // shown once, here

	dispatcher, err := delivery.New(delivery.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	check(err)
	stopped := make(chan error)
	go func() { stopped <- dispatcher.Run(ctx) }()

	check(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO invoices (id, paid) VALUES ('in_1', true)"); err != nil {
			return err
		}
		_, err := delivery.Enqueue(ctx, tx, delivery.Event{
			Tenant: "acme", Type: "invoice.paid", Asset: "in_1", Payload: []byte(`{"id":"in_1","total":1200}`),
		})
		return err
	}))

	fmt.Println(<-endpoint.received)
	cancel() // what is open is finished and recorded
	check(<-stopped)
	// Output: invoice.paid, signature good: {"id":"in_1","total":1200}
}

// The events exist if and only if the transaction commits.
func ExampleEnqueue() {
	ctx := context.Background()
	pool, drop := exampleDatabase()
	defer drop()

	pay := func(outcome error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO invoices (id, paid) VALUES ('in_1', true)"); err != nil {
				return err
			}
			events, err := delivery.Enqueue(ctx, tx, delivery.Event{
				ID: "in_1-paid", Tenant: "acme", Type: "invoice.paid", Asset: "in_1", Payload: []byte(`{}`),
			})
			if err != nil {
				return err // of the database: the transaction is over
			}
			fmt.Println(events[0].ID, "duplicate:", events[0].Duplicate)
			return outcome
		})
	}
	fmt.Println("first:", pay(fmt.Errorf("card declined")))
	fmt.Println("again:", pay(nil)) // the first one left nothing behind
	// Output:
	// in_1-paid duplicate: false
	// first: card declined
	// in_1-paid duplicate: false
	// again: <nil>
}

// Transactions that change the same asset take turns, so that their events follow the
// order of their commits.
func ExampleSerialize() {
	ctx := context.Background()
	pool, drop := exampleDatabase()
	defer drop()
	_, err := pool.Exec(ctx, "INSERT INTO invoices (id, version) VALUES ('in_1', 0)")
	check(err)

	change := func() error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := delivery.Serialize(ctx, tx, "in_1"); err != nil { // before it is read
				return err
			}
			var version int
			if err := tx.QueryRow(ctx, "SELECT version + 1 FROM invoices WHERE id = 'in_1'").Scan(&version); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "UPDATE invoices SET version = $1 WHERE id = 'in_1'", version); err != nil {
				return err
			}
			_, err := delivery.Enqueue(ctx, tx, delivery.Event{
				Tenant: "acme", Type: "invoice.changed", Asset: "in_1", Payload: fmt.Appendf(nil, "%d", version),
			})
			return err
		})
	}
	done := make(chan error)
	for range 4 {
		go func() { done <- change() }()
	}
	for range 4 {
		check(<-done)
	}
	var order string
	err = pool.QueryRow(ctx, "SELECT string_agg(convert_from(payload, 'UTF8'), ' ' ORDER BY seq) FROM postlane.events").Scan(&order)
	check(err)
	fmt.Println(order)
	// Output: 1 2 3 4
}

// The secret is returned here and never again.
func ExampleStore_CreateSubscription() {
	ctx := context.Background()
	pool, drop := exampleDatabase()
	defer drop()
	store, err := delivery.NewStore(pool, delivery.StoreConfig{})
	check(err)

	sub, secret, err := store.CreateSubscription(ctx, "acme", delivery.Settings{
		URL:        "https://example.com/hooks",
		EventTypes: []string{"invoice.*", "customer.created"},
		OnDead:     delivery.Hold, // nothing overtakes what could not be delivered
	})
	check(err)
	fmt.Println(sub.State, sub.MaxAttempts)
	fmt.Println("logged as", secret, "given as", secret.Reveal()[:6]+"…")

	// The guard refuses what must not be reached, before anything is stored.
	_, _, err = store.CreateSubscription(ctx, "acme", delivery.Settings{URL: "https://169.254.169.254/latest"})
	fmt.Println(err != nil)
	// Output:
	// active 8
	// logged as whsec_[redacted] given as whsec_…
	// true
}

// exampleEndpoint is a subscriber's: it verifies what it gets.
type exampleEndpoint struct {
	*httptest.Server
	secrets  chan signing.Secret
	received chan string
}

func newEndpoint() *exampleEndpoint {
	e := &exampleEndpoint{secrets: make(chan signing.Secret, 1), received: make(chan string, 10)}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secret := <-e.secrets
		e.secrets <- secret
		body, err := io.ReadAll(r.Body) // the raw bytes are what is signed
		if err == nil {
			err = signing.Verify([]signing.Key{secret}, signing.HeadersOf(r.Header), body, time.Now(), 0)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		e.received <- fmt.Sprintf("%s, signature good: %s", r.Header.Get("Postlane-Event-Type"), body)
	}))
	return e
}

// exampleDatabase returns a pool on a new database with the schema and a table of
// invoices, and a function that drops it.
func exampleDatabase() (*pgxpool.Pool, func()) {
	ctx := context.Background()
	shared, err := server.Use()
	check(err)
	execute := func(sql string) {
		conn, err := pgx.Connect(ctx, shared.URL)
		check(err)
		defer func() { check(conn.Close(ctx)) }()
		_, err = conn.Exec(ctx, sql)
		check(err)
	}
	name := "postlane_example_" + strings.ToLower(rand.Text()[:8])
	execute("CREATE DATABASE " + name + " TEMPLATE template0")
	config, err := pgxpool.ParseConfig(shared.URL)
	check(err)
	config.ConnConfig.Database = name
	_, err = migrate.Up(ctx, config.ConnConfig, db.Schema(), migrate.Config{})
	check(err)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	check(err)
	_, err = pool.Exec(ctx, "CREATE TABLE invoices (id text PRIMARY KEY, paid boolean, version integer)")
	check(err)
	return pool, func() {
		pool.Close()
		execute("DROP DATABASE " + name + " WITH (FORCE)")
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
