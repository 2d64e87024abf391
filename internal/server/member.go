package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/api"
	"github.com/postlane-go/postlane/internal/console"
	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/metrics"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/pooler"
	"github.com/postlane-go/postlane/internal/replica"
	"github.com/postlane-go/postlane/internal/retention"
	"github.com/postlane-go/postlane/outbox"
)

// Database is one of those that a server works with.
type Database struct {
	// Name tells it from the others. It may be "" where there is one.
	Name  string
	Pool  *pgxpool.Pool
	Store *delivery.Store
	// Listen is where to listen for wake-ups. Default: as the pool connects.
	Listen *pgx.ConnConfig
	// Replica is a standby that lists and pages are read from. Default: none; the primary
	// is read.
	Replica *pgxpool.Pool
}

// member is what a server does for one database.
type member struct {
	Database
	log        *slog.Logger
	counts     *metrics.Database
	dispatcher *delivery.Dispatcher
	relay      *outbox.Relay // nil for none
	keys       *keys.Store
	api        http.Handler
	console    *console.Console
	retention  retention.Config
	replica    *replica.Replica // nil for none
}

// newMember prepares the work for a database, which need not answer yet.
func newMember(c Config, d Database, all *metrics.Metrics) (*member, error) {
	m := &member{Database: d, log: c.Logger}
	label := ""
	if c.several() {
		label, m.log = d.Name, c.Logger.With("database", d.Name)
	}
	var err error
	if m.counts, err = all.Database(label, d.Pool); err != nil {
		return nil, err
	}
	c.Dispatcher.Store, c.Dispatcher.Logger, c.Dispatcher.Observer, c.Dispatcher.Listen = d.Store, m.log, m.counts.Observer(), d.Listen
	if m.dispatcher, err = delivery.New(c.Dispatcher); err != nil {
		return nil, err
	}
	if err := m.counts.Watch(m.dispatcher); err != nil {
		return nil, err
	}
	replicaStore, err := m.watchReplica(c)
	if err != nil {
		return nil, err
	}
	m.keys = keys.New(d.Pool, c.Settings.OperatorKey)
	m.api, err = api.New(api.Config{
		Pool: d.Pool, Store: d.Store, Sender: c.Dispatcher.Sender, OperatorKey: c.Settings.OperatorKey,
		CursorKey: c.Settings.Keyring.Derive("cursors"), Rate: c.Settings.Rate, Metrics: all, Logger: m.log,
		Replica: m.replica, ReplicaPool: d.Replica, ReplicaStore: replicaStore,
	})
	if err != nil {
		return nil, err
	}
	m.console, err = console.New(console.Config{
		Pool: d.Pool, Store: d.Store, Sender: c.Dispatcher.Sender, OperatorKey: c.Settings.OperatorKey, Logger: m.log,
		Database: label, Databases: c.names(),
		Replica: m.replica, ReplicaPool: d.Replica, ReplicaStore: replicaStore,
	})
	if err != nil {
		return nil, err
	}
	listen := d.Listen
	if listen == nil && !c.Dispatcher.NoListen {
		listen = d.Pool.Config().ConnConfig.Copy()
	}
	if m.relay, err = newRelay(c.Settings.Relay, d.Pool, listen, m.log); err != nil {
		return nil, err
	}
	if m.relay != nil {
		if err := m.counts.WatchRelay(m.relay); err != nil {
			return nil, err
		}
	}
	m.retention = retention.Config{Pool: d.Pool, Store: d.Store, Keep: c.Settings.Keep, Counted: m.counts.Pruned, Logger: m.log}
	return m, nil
}

// watchReplica returns a store on the replica, if there is one.
func (m *member) watchReplica(c Config) (*delivery.Store, error) {
	if m.Replica == nil {
		return nil, nil
	}
	m.replica = replica.New(m.Pool, m.Replica, m.log)
	if err := m.counts.WatchReplica(m.replica); err != nil {
		return nil, err
	}
	return delivery.NewStore(m.Replica, delivery.StoreConfig{Keyring: c.Settings.Keyring})
}

// check reports why the database cannot be worked with.
func (m *member) check(ctx context.Context) error {
	err := migrate.Check(ctx, m.Pool, db.Schema())
	switch {
	case errors.Is(err, migrate.ErrBehind):
		return fmt.Errorf("%w; run: postlane migrate up", err)
	case errors.Is(err, migrate.ErrAhead):
		m.log.Warn("a newer release has migrated this database", "detail", err)
	case err != nil:
		return fmt.Errorf("the database cannot be read: %w", err)
	}
	return nil
}

// askAgain is how long after a database that did not answer, or was not migrated, is asked
// again.
const askAgain = 2 * time.Second

// await waits until the database can be worked with.
func (m *member) await(ctx context.Context) {
	said := ""
	for {
		asked, cancel := context.WithTimeout(ctx, readyWithin)
		err := m.check(asked)
		if err == nil {
			err = pooler.CheckStatements(asked, m.Pool)
		}
		cancel()
		if err == nil || ctx.Err() != nil {
			return
		}
		if said != err.Error() {
			said = err.Error()
			m.log.Error("this database is left out until it can be worked with; the others are served", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(askAgain):
		}
	}
}

// run works until ctx ends.
func (m *member) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var parts sync.WaitGroup
	var relayed error
	if m.relay != nil {
		parts.Go(func() {
			relayed = m.relay.Run(ctx)
			stop()
		})
	}
	if m.replica != nil {
		parts.Go(func() { m.replica.Run(ctx) })
	}
	parts.Go(func() { m.console.Count(ctx) })
	parts.Go(func() { retention.Run(ctx, m.retention) })
	err := m.dispatcher.Run(ctx)
	stop()
	parts.Wait()
	return errors.Join(err, relayed)
}
