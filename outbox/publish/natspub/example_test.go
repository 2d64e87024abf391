package natspub_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/pgtest/server"
	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/publish/natspub"
)

// A business row and a message are written in one transaction, and the message is
// relayed to JetStream.
func Example() {
	ctx := context.Background()
	pool, drop := exampleDatabase() // a *pgxpool.Pool; the schema is in package db
	defer drop()
	js, closeServer := exampleJetStream() // a jetstream.JetStream
	defer closeServer()
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"order.>"}})
	check(err)

	// The application: the message exists if and only if this commits.
	check(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id, total) VALUES ('o7', 1200)"); err != nil {
			return err
		}
		_, err := outbox.Stage(ctx, tx, outbox.Message{ID: "msg_1", Topic: "order.paid", Queue: "o7", Payload: []byte(`{"id":"o7","total":1200}`)})
		return err
	}))

	// The relay, in any number of processes.
	publisher, err := natspub.New(js, natspub.Config{})
	check(err)
	store, err := outbox.NewPostgres(pool, outbox.StoreConfig{})
	check(err)
	relay, err := outbox.NewRelay(outbox.RelayConfig{Store: store, Publisher: publisher, Listen: pool.Config().ConnConfig})
	check(err)
	stopped := make(chan error)
	go func() { stopped <- relay.Run(ctx) }()

	// Whoever reads the stream.
	consumer, err := stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	check(err)
	m, err := consumer.Next()
	check(err)
	check(m.Ack())
	fmt.Printf("%s %s: %s\n", m.Subject(), m.Headers().Get(nats.MsgIdHdr), m.Data())

	relay.Stop() // what is being published is finished, the rest handed back
	check(<-stopped)
	// Output: order.paid msg_1: {"id":"o7","total":1200}
}

// exampleJetStream runs a NATS server in this process.
func exampleJetStream() (jetstream.JetStream, func()) {
	dir, err := os.MkdirTemp("", "natspub")
	check(err)
	js, closeServer, err := startServer(dir)
	check(err)
	return js, func() { closeServer(); check(os.RemoveAll(dir)) }
}

// exampleDatabase returns a database with Postlane's schema and a table of orders.
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
	_, err = pool.Exec(ctx, "CREATE TABLE orders (id text PRIMARY KEY, total integer)")
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
