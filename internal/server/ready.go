package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/migrate"
)

var queries = dbgen.New()

// readyWithin bounds what is asked of the database: a probe that hangs tells nothing.
const readyWithin = 2 * time.Second

// readiness answers whether this server does what it is for.
type readiness struct {
	pool       *pgxpool.Pool
	dispatcher *delivery.Dispatcher
	// stopping is closed when the dispatcher stops, and the server with it.
	stopping <-chan struct{}
}

func (a readiness) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if reason := a.reason(r.Context()); reason != "" {
		answer(w, http.StatusServiceUnavailable, map[string]any{"status": "not ready", "reason": reason})
		return
	}
	answer(w, http.StatusOK, map[string]any{
		"status": "ready", "in_flight": a.dispatcher.InFlight(), "listening": a.dispatcher.Listening(), "dormant": a.dispatcher.Dormant(),
	})
}

// reason is why it is not ready; "" if it is. It tells everybody, and so no more than that.
func (a readiness) reason(ctx context.Context) string {
	select {
	case <-a.stopping:
		return "the server is stopping"
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	err := migrate.Check(ctx, a.pool, db.Schema())
	switch {
	case errors.Is(err, migrate.ErrBehind):
		return "the database schema is behind; run: postlane migrate up"
	case err != nil && !errors.Is(err, migrate.ErrAhead):
		return "the database does not answer"
	}
	switch writable, err := queries.ServerWritable(ctx, a.pool); {
	case err != nil:
		return "the database does not answer"
	case !writable:
		return "the database takes no writes: it is a standby, or set to be read only"
	}
	return ""
}
