package server

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/migrate"
)

var queries = dbgen.New()

// readyWithin bounds what is asked of the database: a probe that hangs tells nothing.
const readyWithin = 2 * time.Second

// readiness answers whether this server does what it is for. It tells everybody, and so
// no more than that: databases by their place in the configuration.
type readiness struct {
	members []*member
	// stopping is closed when the dispatchers stop, and the server with them.
	stopping <-chan struct{}
}

// state is how a database is.
type state struct {
	Dormant   *bool  `json:"dormant,omitempty"`
	InFlight  *int   `json:"in_flight,omitempty"`
	Listening *bool  `json:"listening,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Status    string `json:"status"`
}

func (a readiness) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	states := make([]state, len(a.members))
	var asked sync.WaitGroup
	for i, m := range a.members {
		asked.Go(func() { states[i] = a.state(r.Context(), m) })
	}
	asked.Wait()
	status, ready := http.StatusOK, 0
	for _, s := range states {
		if s.Status == "ready" {
			ready++
		}
	}
	if ready == 0 {
		status = http.StatusServiceUnavailable
	}
	switch {
	case len(states) == 1:
		answer(w, status, states[0])
	case ready == 0:
		answer(w, status, map[string]any{"status": "not ready", "databases": states})
	case ready < len(states): // the others' tenants need this server
		answer(w, status, map[string]any{"status": "partly ready", "databases": states})
	default:
		answer(w, status, map[string]any{"status": "ready", "databases": states})
	}
}

func (a readiness) state(ctx context.Context, m *member) state {
	if reason := a.reason(ctx, m); reason != "" {
		return state{Status: "not ready", Reason: reason}
	}
	inFlight, listening, dormant := m.dispatcher.InFlight(), m.dispatcher.Listening(), m.dispatcher.Dormant()
	return state{&dormant, &inFlight, &listening, "", "ready"}
}

// reason is why a database is not ready; "" if it is.
func (a readiness) reason(ctx context.Context, m *member) string {
	select {
	case <-a.stopping:
		return "the server is stopping"
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	err := migrate.Check(ctx, m.Pool, db.Schema())
	switch {
	case errors.Is(err, migrate.ErrBehind):
		return "the database schema is behind; run: postlane migrate up"
	case err != nil && !errors.Is(err, migrate.ErrAhead):
		return "the database does not answer"
	}
	switch writable, err := queries.ServerWritable(ctx, m.Pool); {
	case err != nil:
		return "the database does not answer"
	case !writable:
		return "the database takes no writes: it is a standby, or set to be read only"
	}
	return ""
}
