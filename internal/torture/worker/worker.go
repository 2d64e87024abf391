// Package worker is a process that dispatches and relays, over the public API, with
// leases so short that much happens in a minute. It does what its standard input says
// beside it: see Commands.
package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/retry"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/publish/deliverypub"
)

// Config is what a worker is told.
type Config struct {
	// Name is in its leases, and in the User-Agent of its requests.
	Name        string
	DatabaseURL string
	SecretKey   string
	Lease       time.Duration
	Timeout     time.Duration
}

// The commands that a worker obeys, one a line, each with a duration.
const (
	// Exhaust takes every connection of the pool for so long.
	Exhaust = "exhaust"
	// Shift sets its wall clock so far from the machine's.
	Shift = "shift"
)

// Run works until ctx ends.
func Run(ctx context.Context, c Config, commands io.Reader, log *slog.Logger) error {
	settings, err := pgxpool.ParseConfig(c.DatabaseURL)
	if err != nil {
		return err
	}
	settings.MaxConns = 8
	settings.ConnConfig.ConnectTimeout = 2 * time.Second
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return err
	}
	defer pool.Close()
	dispatcher, closeSender, err := newDispatcher(c, pool, log)
	if err != nil {
		return err
	}
	defer closeSender()
	relay, err := newRelay(c, pool, log)
	if err != nil {
		return err
	}
	go obey(ctx, commands, pool, log)

	var parts sync.WaitGroup
	var failed [2]error
	parts.Go(func() { failed[0] = dispatcher.Run(ctx) })
	parts.Go(func() { failed[1] = relay.Run(ctx) })
	parts.Wait()
	return errors.Join(failed[:]...)
}

func newDispatcher(c Config, pool *pgxpool.Pool, log *slog.Logger) (*delivery.Dispatcher, func(), error) {
	keyring, err := delivery.ParseKeyring(c.SecretKey)
	if err != nil {
		return nil, nil, err
	}
	judge, err := guard.New(guard.Policy{Development: true})
	if err != nil {
		return nil, nil, err
	}
	store, err := delivery.NewStore(pool, delivery.StoreConfig{Guard: judge, Keyring: keyring})
	if err != nil {
		return nil, nil, err
	}
	send, err := sender.New(sender.Config{Guard: judge, Timeout: c.Timeout, BodyTimeout: c.Timeout / 2, UserAgent: c.Name})
	if err != nil {
		return nil, nil, err
	}
	schedule, err := retry.NewSchedule(0, 200*time.Millisecond, 400*time.Millisecond)
	if err != nil {
		return nil, nil, err
	}
	dispatcher, err := delivery.New(delivery.Config{
		Store: store, Sender: send, Schedule: schedule, Claimant: c.Name, Lease: c.Lease, Logger: log,
		MaxInFlight: 40, MaxInFlightPerSubscription: 12, Batch: 20,
		Poll: 500 * time.Millisecond, Reclaim: 500 * time.Millisecond, Grace: time.Second,
	})
	return dispatcher, func() { send.Close() }, err
}

func newRelay(c Config, pool *pgxpool.Pool, log *slog.Logger) (*outbox.Relay, error) {
	store, err := outbox.NewPostgres(pool, outbox.StoreConfig{Claimant: c.Name, Lease: &c.Lease})
	if err != nil {
		return nil, err
	}
	publisher, err := deliverypub.New(pool, deliverypub.Config{})
	if err != nil {
		return nil, err
	}
	return outbox.NewRelay(outbox.RelayConfig{
		Store: store, Publisher: publisher, Batch: 10, Poll: 500 * time.Millisecond, PublishTimeout: c.Timeout,
		Listen: pool.Config().ConnConfig, Logger: log,
		Backoff: func(attempt int) time.Duration {
			return min(time.Duration(attempt)*200*time.Millisecond, 2*time.Second)
		},
	})
}

// obey carries out commands until there are no more.
func obey(ctx context.Context, commands io.Reader, pool *pgxpool.Pool, log *slog.Logger) {
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		d, err := time.ParseDuration(text)
		switch {
		case err != nil:
		case name == Exhaust:
			exhaust(ctx, pool, d)
		case name == Shift:
			err = shift(d)
		default:
			err = fmt.Errorf("no command %q", name)
		}
		if err != nil {
			log.Error("command failed", "error", err)
		}
	}
}

// exhaust holds every connection that it can get until the time is over.
func exhaust(ctx context.Context, pool *pgxpool.Pool, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for ctx.Err() == nil {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			continue
		}
		defer conn.Release()
	}
}
