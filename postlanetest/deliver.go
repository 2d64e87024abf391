package postlanetest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/outbox"
)

// Patience is how long Deliver and Relay go on before they fail the test. It bounds what
// goes wrong, and says nothing of how long they take.
const Patience = time.Minute

// Migrate gives the database of pool the schema, or what of it is missing.
func Migrate(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := migrate.Up(t.Context(), pool.Config().ConnConfig, db.Schema(), migrate.Config{}); err != nil {
		t.Fatalf("postlanetest: migrate: %v", err)
	}
}

// NewStore returns a store that accepts endpoints on this machine. Its time is the
// clock's; nil is the database's.
func NewStore(t testing.TB, pool *pgxpool.Pool, clock *Clock) *delivery.Store {
	t.Helper()
	local, err := guard.New(guard.Policy{Development: true})
	if err != nil {
		t.Fatal(err)
	}
	config := delivery.StoreConfig{Guard: local}
	if clock != nil {
		config.Now = clock.Now
	}
	store, err := delivery.NewStore(pool, config)
	if err != nil {
		t.Fatalf("postlanetest: %v", err)
	}
	return store
}

// Deliver runs a dispatcher until nothing can be delivered at the store's time: what is due
// has been sent, and so has what became due behind it. What waits for a retry is left
// for a Deliver after Clock.Advance.
//
// Only config.Store is required. It polls often and listens for no wake-ups, and logs to
// the test unless config says otherwise.
func Deliver(t testing.TB, config delivery.Config) {
	t.Helper()
	if config.Poll == 0 {
		config.Poll = 20 * time.Millisecond
	}
	if config.Logger == nil {
		config.Logger = logger(t)
	}
	config.NoListen = true
	// Something happened, so it may be idle now.
	happened := make(chan struct{}, 1)
	claimed := config.Observer.Claimed
	config.Observer.Claimed = func(n int, took time.Duration) {
		if claimed != nil {
			claimed(n, took)
		}
		select {
		case happened <- struct{}{}:
		default:
		}
	}
	dispatcher, err := delivery.New(config)
	if err != nil {
		t.Fatalf("postlanetest: %v", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), Patience)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- dispatcher.Run(ctx) }()
	unsettled := untilIdle(ctx, config.Store, happened)
	stop()
	if err := <-ended; err != nil {
		t.Fatalf("postlanetest: %v", err)
	}
	if unsettled != nil {
		t.Fatalf("postlanetest: deliveries are still under way after %v: %v", Patience, unsettled)
	}
}

// untilIdle looks whenever a claim was made, and from time to time: a dispatcher that knows
// of no active subscription makes none.
func untilIdle(ctx context.Context, store *delivery.Store, happened <-chan struct{}) error {
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	for {
		if idle, err := store.Idle(ctx); idle || err != nil {
			return err
		}
		select {
		case <-happened:
		case <-beat.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Relay runs a relay until nothing can be published at the store's time, and returns what
// it did. What waits for its time, or behind a message that failed, is left for a Relay
// after Clock.Advance.
//
// config needs a Store and a Publisher.
func Relay(t testing.TB, config outbox.RelayConfig) outbox.Stats {
	t.Helper()
	if config.Logger == nil {
		config.Logger = logger(t)
	}
	relay, err := outbox.NewRelay(config)
	if err != nil {
		t.Fatalf("postlanetest: %v", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), Patience)
	defer stop()
	for {
		before := relay.Stats()
		if _, err := relay.Tick(ctx); err != nil {
			t.Fatalf("postlanetest: relay: %v", err)
		}
		if relay.Stats() == before {
			return before
		}
	}
}

// logger writes what a person should know to the test's own log.
func logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}
