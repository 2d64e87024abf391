package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery/retry"
	"github.com/postlane-go/postlane/delivery/sender"
)

// Sender makes attempts. *sender.Sender is the one to use; another is for tests.
type Sender interface {
	// Send makes one attempt and says what came of it. When ctx ends it returns
	// soon with the outcome sender.Canceled. It is called from many goroutines.
	Send(ctx context.Context, r sender.Request) sender.Result
	// Timeout is the longest that Send takes.
	Timeout() time.Duration
}

// Config says how a Dispatcher works. Only Store is required.
type Config struct {
	// Store is where the deliveries are.
	Store *Store

	// Sender makes the attempts.
	// Default: a *sender.Sender with the Store's guard and defaults.
	Sender Sender

	// MaxInFlight is the most requests open at a time. Default: 256.
	MaxInFlight int

	// MaxInFlightPerSubscription is the most of them for one subscription, so that
	// an endpoint that hangs takes its share and no more.
	// Default: a quarter of MaxInFlight, at least 1. At most MaxInFlight.
	MaxInFlightPerSubscription int

	// Batch is the most streams that one claim takes. Default: 200, or
	// MaxInFlight if that is less.
	Batch int

	// Ahead is how many deliveries of a stream are sent behind a claimed one under
	// the same lease, one after another, each when the one before has succeeded
	// and without waiting for the database: it is what lets a deep stream move at
	// its endpoint's speed. After a crash as many may be sent twice, in order.
	// Default: 64. Negative: none.
	Ahead int

	// Lease is how long a claim is this dispatcher's; it is renewed while the
	// delivery is in flight. It is how long a crashed dispatcher's deliveries
	// wait. It must exceed the Sender's timeout by LeaseMargin.
	// Default: 30 s.
	Lease time.Duration

	// Poll is how often to look without being woken: the longest that a delivery
	// waits whose wake-up was lost. Default: 1 s.
	Poll time.Duration

	// Reclaim is how often to look for leases that ran out. Default: 5 s.
	Reclaim time.Duration

	// Grace is how long Run lets requests finish that are open when it is told to
	// stop. Those still open then are cut, and released uncharged.
	// Default: 15 s.
	Grace time.Duration

	// Schedule says how long a delivery waits after each failed attempt. After how
	// many it is dead is the subscription's choice (Settings.MaxAttempts).
	// Default: 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 10 h.
	Schedule retry.Schedule

	// NoBreaker has this dispatcher open no Breaker: it tries an endpoint that is not
	// there with every delivery. It keeps to one that another opened.
	NoBreaker bool

	// Claimant names this dispatcher in leases and attempts, for people: two with
	// one name work, and cannot be told apart.
	// Default: the host's name and a random part.
	Claimant string

	// Listen is where to listen for wake-ups: PostgreSQL itself, or a pooler in
	// session mode. Default: where the Store's pool connects to.
	Listen *pgx.ConnConfig
	// NoListen leaves waking to Poll alone.
	NoListen bool

	// Observer is told what happens, for metrics.
	Observer Observer

	// Logger is told what a person should know. Default: slog.Default().
	Logger *slog.Logger
}

// LeaseMargin is by how much a lease must exceed the sender's timeout: time to start
// the request after the claim, and to record the answer.
const LeaseMargin = time.Second

func (c Config) withDefaults() (Config, error) {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf("delivery: "+format, args...)) }
	if c.Store == nil {
		return c, errors.New("delivery: a dispatcher needs a Store")
	}
	if c.Sender == nil {
		s, err := sender.New(sender.Config{Guard: c.Store.guard})
		if err != nil {
			return c, fmt.Errorf("delivery: %w", err)
		}
		c.Sender = s
	}
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 256)
	c.MaxInFlightPerSubscription = cmp.Or(c.MaxInFlightPerSubscription, max(c.MaxInFlight/4, 1))
	c.Batch = cmp.Or(c.Batch, min(200, c.MaxInFlight))
	c.Ahead = cmp.Or(c.Ahead, 64)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Reclaim = cmp.Or(c.Reclaim, 5*time.Second)
	c.Grace = cmp.Or(c.Grace, 15*time.Second)
	if c.Claimant == "" {
		host, _ := os.Hostname()
		c.Claimant = cmp.Or(host, "dispatcher") + "-" + uuid.NewString()[:8]
	}
	if c.Listen == nil {
		c.Listen = c.Store.pool.Config().ConnConfig.Copy()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	switch {
	case c.MaxInFlight < 1 || c.MaxInFlight > 100_000:
		refuse("MaxInFlight is %d; use 1 to 100,000", c.MaxInFlight)
	case c.MaxInFlightPerSubscription < 1 || c.MaxInFlightPerSubscription > c.MaxInFlight:
		refuse("MaxInFlightPerSubscription is %d; use 1 to MaxInFlight (%d)", c.MaxInFlightPerSubscription, c.MaxInFlight)
	}
	if c.Batch < 1 || c.Batch > 10_000 {
		refuse("Batch is %d; use 1 to 10,000", c.Batch)
	}
	if c.Ahead > aheadBudget {
		refuse("Ahead is %d; use at most %d, or a negative number for none", c.Ahead, aheadBudget)
	}
	if timeout := c.Sender.Timeout(); c.Lease < timeout+LeaseMargin {
		refuse("Lease is %v, and an attempt may take %v: another dispatcher would send it again meanwhile; use at least %v", c.Lease, timeout, timeout+LeaseMargin)
	}
	if c.Lease > 24*time.Hour {
		refuse("Lease is %v: that is how long a crashed dispatcher's deliveries would wait; use at most 24h", c.Lease)
	}
	for name, d := range map[string]time.Duration{"Poll": c.Poll, "Reclaim": c.Reclaim, "Grace": c.Grace} {
		if d < time.Millisecond {
			refuse("%s is %v; use 1ms or more", name, d)
		}
	}
	return c, errors.Join(errs...)
}
