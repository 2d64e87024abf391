// Package dev is `postlane dev`: the whole of Postlane on this machine, from a private
// PostgreSQL to a receiver that judges what arrives.
package dev

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/postgres"
	"github.com/postlane-go/postlane/internal/receiver"
	"github.com/postlane-go/postlane/internal/server"
	"github.com/postlane-go/postlane/internal/settings"
)

// Config says what to show.
type Config struct {
	// Dir is where the private PostgreSQL and the keys are kept. Default: .postlane
	Dir string
	// DatabaseURL is a PostgreSQL to use instead of a private one.
	DatabaseURL string
	// Listen is the server's address. Default: 127.0.0.1:8080; with Once, a free port.
	Listen string

	// Once sends Events over Streams, waits until all are settled, and judges.
	Once            bool
	Events, Streams int
	// Workers is the number of processes that dispatch.
	Workers int

	// Out gets the result, Err what is going on.
	Out, Err io.Writer
	// Executable is this program, for the other workers. Default: os.Executable.
	Executable string
}

// stage is what the demonstration stands on.
type stage struct {
	config   Config
	log      *slog.Logger
	settings settings.Settings
	secret   string
	pool     *pgxpool.Pool
	store    *delivery.Store
	receiver *receiver.Receiver
	endpoint string // the receiver's URL
	tenant   string
}

// Run shows Postlane until ctx ends, or, with Config.Once, until everything is settled;
// it then fails if anything was lost, out of order or overlapping.
func Run(ctx context.Context, c Config) (err error) {
	if c.Dir == "" {
		c.Dir = ".postlane"
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", c.Dir, err)
	}
	s := &stage{config: c, log: slog.New(slog.NewTextHandler(c.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	if s.secret, err = key(c.Dir, "secret.key"); err != nil {
		return err
	}
	operator, err := key(c.Dir, "operator.key")
	if err != nil {
		return err
	}
	url, stop, err := database(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	s.settings = settings.Settings{Databases: []settings.Database{{URL: url}}, Listen: c.Listen, Mode: settings.Development, OperatorKey: operator}
	if s.settings.Keyring, err = delivery.ParseKeyring(s.secret); err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	defer s.pool.Close()
	return s.run(ctx)
}

// database returns a migrated database, and what stops it.
func database(ctx context.Context, c Config) (url string, stop func() error, err error) {
	url, stop = c.DatabaseURL, func() error { return nil }
	if url == "" {
		fmt.Fprintln(c.Err, "starting PostgreSQL in", filepath.Join(c.Dir, "postgres"))
		private, err := postgres.Start(ctx, postgres.Config{Dir: filepath.Join(c.Dir, "postgres")})
		if err != nil {
			return "", nil, err
		}
		url, stop = private.URL("postgres"), private.Stop
	}
	conn, err := pgxpool.ParseConfig(url)
	if err != nil {
		return "", nil, errors.Join(errors.New(settings.Env("database-url")+" is not a PostgreSQL URL"), stop())
	}
	progress := func(s migrate.Step) { fmt.Fprintln(c.Err, s) }
	if _, err := migrate.Up(ctx, conn.ConnConfig, db.Schema(), migrate.Config{Progress: progress}); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return url, stop, nil
}

func (s *stage) connect(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(s.settings.Databases[0].URL)
	if err != nil {
		return err
	}
	config.MaxConns = max(config.MaxConns, 16)
	config.ConnConfig.RuntimeParams["application_name"] = "postlane dev"
	if s.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	guard, err := s.settings.Guard()
	if err != nil {
		return err
	}
	s.store, err = delivery.NewStore(s.pool, delivery.StoreConfig{Guard: guard, Keyring: s.settings.Keyring})
	return err
}

// run starts the receiver, the workers and the server, shows the part that was asked
// for, and stops them in the opposite order.
func (s *stage) run(ctx context.Context) (err error) {
	address := "127.0.0.1:8099"
	if s.config.Once {
		address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		// Another dev runs; any port will do for the sample receiver.
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return fmt.Errorf("the receiver cannot listen: %w", err)
		}
	}
	s.endpoint = "http://" + listener.Addr().String()
	if s.receiver, err = receiver.New(receiver.Config{}); err != nil {
		return err
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	// The receiver goes last, so that what is in flight gets its answer.
	receiving, stopReceiving := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReceiving()
	parts.Go(func() {
		if e := s.receiver.Serve(receiving, listener); e != nil {
			s.log.Error("the receiver stopped", "error", e)
		}
	})

	working, stopWorking := context.WithCancelCause(ctx)
	defer stopWorking(nil)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stopWorking(nil)
	ready := make(chan net.Addr, 1)
	workers.Go(func() {
		if e := s.serve(working, ready); e != nil {
			stopWorking(fmt.Errorf("the server stopped: %w", e))
		}
	})
	for n := 2; n <= s.config.Workers; n++ {
		workers.Go(func() {
			if e := s.work(working, n); e != nil {
				stopWorking(fmt.Errorf("worker %d stopped: %w", n, e))
			}
		})
	}
	select {
	case addr := <-ready:
		s.settings.Listen = addr.String()
	case <-working.Done():
		return cause(working)
	}
	if s.config.Once {
		err = s.once(working)
	} else {
		err = s.live(working)
	}
	if c := cause(working); c != nil {
		return c
	}
	return err
}

// cause is why a part failed; nil where it was told to stop.
func cause(ctx context.Context) error {
	if c := context.Cause(ctx); c != nil && !errors.Is(c, context.Canceled) {
		return c
	}
	return nil
}

func (s *stage) serve(ctx context.Context, ready chan<- net.Addr) error {
	guard, err := s.settings.Guard()
	if err != nil {
		return err
	}
	snd, err := sender.New(sender.Config{Guard: guard})
	if err != nil {
		return err
	}
	defer snd.Close()
	config := s.settings
	if s.config.Once {
		config.Listen = "127.0.0.1:0"
	}
	return server.Run(ctx, server.Config{
		Settings: config, Databases: []server.Database{{Pool: s.pool, Store: s.store}}, Dispatcher: delivery.Config{Sender: snd}, Logger: s.log,
		Ready: func(a net.Addr) { ready <- a },
	})
}

// subscribe adds a subscription whose requests the receiver verifies.
func (s *stage) subscribe(ctx context.Context, path string, types ...string) (delivery.SubscriptionID, error) {
	about := "sample endpoint of postlane dev"
	sub, secret, err := s.store.CreateSubscription(ctx, s.tenant, delivery.Settings{URL: s.endpoint + path, EventTypes: types, Description: &about})
	if err != nil {
		return 0, err
	}
	return sub.ID, s.receiver.SetSecrets(path, secret.Reveal())
}

func (s *stage) secretKey() []byte {
	raw, _ := base64.StdEncoding.DecodeString(s.secret) // it was made, or parsed, before
	return raw
}

// tick calls f every d until ctx ends.
func tick(ctx context.Context, d time.Duration, f func() error) error {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			if err := f(); err != nil {
				return err
			}
		}
	}
}
