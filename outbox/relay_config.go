package outbox

import (
	"cmp"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// RelayConfig says what to relay and how. Store and Publisher are needed.
type RelayConfig struct {
	Store     Store
	Publisher Publisher

	// Batch is the most messages of one claim. Default: 100.
	Batch int

	// MaxInFlight is the most messages that are claimed and not settled. A queue
	// whose publishes hang holds at most a Batch of them; the others go on with
	// the rest. Default: 10 batches.
	MaxInFlight int

	// Poll is how long to wait before looking again when there was nothing, give
	// or take a tenth, so that the relays of several processes do not look all at
	// once. Default: 1 s.
	Poll time.Duration

	// Wake says that there may be something before the next poll.
	// Default: nil; see Listen.
	Wake <-chan struct{}

	// Listen is where to listen for what is staged, if Wake is nil: of a pool it is
	// pool.Config().ConnConfig. It must lead to PostgreSQL itself, or to a pooler in
	// session mode. Default: nil, the relay lives by polling.
	Listen *pgx.ConnConfig

	// PublishTimeout is how long a call of the publisher may take. After it the
	// attempt has failed. Default: 30 s.
	PublishTimeout time.Duration

	// Backoff says how long a queue waits after the attempt-th failed attempt of
	// its first message, from 1. Default: DefaultBackoff.
	Backoff func(attempt int) time.Duration

	// Exhausted says what becomes of a message whose attempts are used up, or
	// whose error is permanent.
	// Default: Wedge.
	Exhausted Exhausted

	// Logger is told of what fails: each failed message, and once each time the
	// store stops or starts to answer. No payloads.
	// Default: slog.Default().
	Logger *slog.Logger
}

// Exhausted is what becomes of a message that cannot be published.
type Exhausted int

const (
	// Wedge keeps it first in its queue, which waits for it: order comes before
	// progress. It is tried on and on, less and less often; Backlog.Waiting
	// counts such queues, and Postgres.List names them with their error.
	Wedge Exhausted = iota
	// Park takes it out of its queue, which goes on. It waits with its error for
	// an operator (Postgres.Retry), and Backlog.Parked counts it.
	Park
)

// DefaultBackoff is 1 s after the first failed attempt, doubled after each further
// one, up to a minute; a fifth of it is drawn by lot.
func DefaultBackoff(attempt int) time.Duration {
	const most = time.Minute
	pause := most
	if attempt < 7 {
		pause = min(time.Second<<max(attempt-1, 0), most)
	}
	return pause - rand.N(pause/5)
}

func (c RelayConfig) withDefaults() (RelayConfig, error) {
	switch {
	case c.Store == nil:
		return c, errors.New("outbox: a relay needs a Store")
	case c.Publisher == nil:
		return c, errors.New("outbox: a relay needs a Publisher")
	case c.Wake != nil && c.Listen != nil:
		return c, errors.New("outbox: a relay has both Wake and Listen; give one")
	case c.Batch < 0, c.MaxInFlight < 0, c.Poll < 0, c.PublishTimeout < 0:
		return c, errors.New("outbox: a number of RelayConfig is negative")
	case c.Exhausted != Wedge && c.Exhausted != Park:
		return c, errors.New("outbox: RelayConfig.Exhausted is neither Wedge nor Park")
	}
	c.Batch = cmp.Or(c.Batch, 100)
	c.MaxInFlight = max(cmp.Or(c.MaxInFlight, 10*c.Batch), c.Batch)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, 30*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Backoff == nil {
		c.Backoff = DefaultBackoff
	}
	return c, nil
}
