package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/migrate"
)

// database is a new one with the schema of Postlane.
type database struct {
	url   string
	pool  *pgxpool.Pool
	store *delivery.Store
	// bulkSeq is the seq of the first of the events that were loaded in bulk.
	bulkSeq int64
}

// connections is how many a pool has, unless a scenario needs a number of its own.
const connections = 48

// newDatabase makes a database, which goes when the run ends, and a pool of connections.
func (r *run) newDatabase(ctx context.Context, connections int32) (*database, error) {
	address, drop, err := createDatabase(ctx, r.server)
	if err != nil {
		return nil, err
	}
	r.undo = append(r.undo, drop)
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	if _, err := migrate.Up(ctx, config.ConnConfig, db.Schema(), migrate.Config{}); err != nil {
		return nil, err
	}
	d := &database{url: address}
	if d.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	r.undo = append(r.undo, func() error { d.pool.Close(); return nil })
	if d.store, err = delivery.NewStore(d.pool, delivery.StoreConfig{Guard: r.guard}); err != nil {
		return nil, err
	}
	return d, nil
}

// createDatabase makes a database beside the one that base names.
func createDatabase(ctx context.Context, base string) (string, func() error, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme == "" {
		return "", nil, errors.New("the database must be given as a URL, such as postgres://postgres@127.0.0.1/postgres")
	}
	name := "postlane_bench_" + strings.ToLower(rand.Text()[:8])
	exec := func(ctx context.Context, sql string) error {
		conn, err := pgx.Connect(ctx, base)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, sql)
		return err
	}
	if err := exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, err
	}
	u.Path = "/" + name
	return u.String(), func() error {
		return exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
	}, nil
}

// subscribe adds n subscriptions to the endpoint, each of a tenant and with a path of its
// own.
func (d *database) subscribe(ctx context.Context, n int, endpoint string) ([]delivery.SubscriptionID, error) {
	ids := make([]delivery.SubscriptionID, n)
	for i := range ids {
		sub, _, err := d.store.CreateSubscription(ctx, tenant(i), delivery.Settings{URL: fmt.Sprintf("%s/%d", endpoint, i)})
		if err != nil {
			return nil, err
		}
		ids[i] = sub.ID
	}
	return ids, nil
}

// tenant names the tenant of subscription i: one each, so that an event has one delivery.
func tenant(i int) string { return fmt.Sprintf("bench-%d", i) }

// body is a 500-byte JSON payload.
var body = []byte(`{"type":"asset.updated","data":{"pad":"` + strings.Repeat("0123456789abcdef", 29)[:458] + `"}}`)

// load enqueues n events, one delivery each, spread over the tenants of so many
// subscriptions.
func (d *database) load(ctx context.Context, n, subscriptions int, asset func(int) string) error {
	const batch = 1000
	for from := 0; from < n; from += batch {
		events := make([]delivery.Event, 0, batch)
		for i := from; i < min(from+batch, n); i++ {
			events = append(events, delivery.Event{Tenant: tenant(i % subscriptions), Type: "asset.updated", Asset: asset(i), Payload: body})
		}
		err := pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
			_, err := delivery.Enqueue(ctx, tx, events...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitDelivered waits until a server has recorded n deliveries as delivered: that of the
// last comes after its arrival.
func (d *database) awaitDelivered(ctx context.Context, n int) error {
	var delivered int
	for began := time.Now(); time.Since(began) < time.Minute; {
		if err := d.pool.QueryRow(ctx, "SELECT count(*) FROM postlane.settled WHERE state = 'delivered'").Scan(&delivered); err != nil {
			return err
		}
		if delivered >= n {
			return nil
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%d of %d deliveries were delivered", delivered, n)
}

// check looks at what n deliveries have left: each delivered by one attempt, and nothing
// under way.
func (d *database) check(ctx context.Context, n int) error { return d.checkPart(ctx, n, n) }

// checkPart looks at what n deliveries of which some were made have left.
func (d *database) checkPart(ctx context.Context, n, made int) error {
	var delivered, other, waiting, leases, attempts int
	err := d.pool.QueryRow(ctx, `SELECT
		(SELECT count(*) FROM postlane.settled WHERE state = 'delivered'), (SELECT count(*) FROM postlane.settled WHERE state <> 'delivered'),
		(SELECT count(*) FROM postlane.deliveries), (SELECT count(*) FROM postlane.leases), (SELECT count(*) FROM postlane.attempts)`).
		Scan(&delivered, &other, &waiting, &leases, &attempts)
	if err != nil {
		return err
	}
	if delivered != made || attempts != made || waiting != n-made || other+leases != 0 {
		return fmt.Errorf("%d of %d deliveries were made, but the database has %d in %d attempts, %d that ended otherwise, %d that wait and %d in flight",
			made, n, delivered, attempts, other, waiting, leases)
	}
	return nil
}
