package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/eventschema"
	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/pgerr"
	"github.com/postlane-go/postlane/internal/replica"
)

// Config is what the API works with. Pool, Store and Sender are required.
type Config struct {
	Pool  *pgxpool.Pool
	Store *delivery.Store
	// Sender makes test requests.
	Sender delivery.Sender

	// OperatorKey is the text of a key that may do everything. Default: none but
	// those that `postlane keys create -operator` made.
	OperatorKey string

	// CursorKey signs cursors: the same for all servers of a database, so that a
	// list can go on at another one.
	// Default: a random one.
	CursorKey []byte

	// Metrics answers GET /metrics, once it is known that an operator asks.
	// Default: none; it is answered as what does not exist.
	Metrics http.Handler

	// Replica is a standby that lists are read from, and ReplicaPool and ReplicaStore are
	// on it. Default: there is none.
	Replica      *replica.Replica
	ReplicaPool  *pgxpool.Pool
	ReplicaStore *delivery.Store

	// Rate is how many requests a second each key may make, and Burst how many at
	// once after a pause. Default: 100, and twice Rate.
	Rate  float64
	Burst int

	// Search is how long a list looks for entries of which its filter leaves few, before
	// it answers with what it has. Default: delivery.Filter's.
	Search time.Duration

	// Logger is told what a person should know. Default: slog.Default().
	Logger *slog.Logger
}

const (
	// maxBody is the largest body of a request, and maxEventsBody that of one with
	// events: a payload of the largest size in base64, and a little.
	maxBody       = 256 << 10
	maxEventsBody = 8 << 20
	// bodyTimeout is how long a body may take to arrive.
	bodyTimeout = 15 * time.Second
	// requestTimeout bounds the work for a request, below the server's own limit for
	// the answer, so that there is one.
	requestTimeout = 25 * time.Second
)

// api is the handlers and what they share.
type api struct {
	Config
	keys     *keys.Store
	attempts *keys.Attempts
	audit    *audit.Log
	cursors  cursors
	limits   *limits
	schemas  *eventschema.Cache
	document huma.API
	// standby is the same on the replica; nil for none.
	standby *api
}

// New returns the handler of /v1/, /metrics, /openapi.json and /docs.
func New(c Config) (http.Handler, error) {
	if c.Pool == nil || c.Store == nil || c.Sender == nil {
		return nil, errors.New("api: needs a Pool, a Store and a Sender")
	}
	c.Rate = cmp.Or(c.Rate, 100)
	c.Burst = cmp.Or(c.Burst, max(1, int(2*c.Rate)))
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.CursorKey == nil {
		c.CursorKey = make([]byte, 32)
		rand.Read(c.CursorKey) // never fails: crypto/rand ends the process instead
	}
	a := &api{
		Config: c, keys: keys.New(c.Pool, c.OperatorKey), audit: audit.New(c.Pool), cursors: cursors{c.CursorKey},
		limits: newLimits(c.Rate, c.Burst), schemas: eventschema.NewCache(c.Store),
	}
	a.attempts = keys.NewAttempts(a.keys)
	if c.Replica != nil {
		standby := *a
		standby.Pool, standby.Store, standby.audit = c.ReplicaPool, c.ReplicaStore, audit.New(c.ReplicaPool)
		a.standby = &standby
	}
	mux := http.NewServeMux()
	a.document = humago.New(mux, description())
	a.document.UseMiddleware(a.admit)
	a.subscriptionRoutes()
	a.actionRoutes()
	a.deliveryRoutes()
	a.retryRoutes()
	a.replayRoutes()
	a.streamRoutes()
	a.eventRoutes()
	a.eventTypeRoutes()
	a.keyRoutes()
	a.auditRoutes()
	a.metricsRoutes()
	if err := a.serveDescription(mux); err != nil {
		return nil, err
	}
	return a.outermost(mux), nil
}

// outermost surrounds every request: headers that all answers have, problems instead of
// net/http's plain text, and an answer even to what makes a handler panic.
func (a *api) outermost(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			a.Logger.Error("a request made its handler panic", "method", r.Method, "path", r.URL.Path, "panic", p)
			internal.problem("").write(w)
		}()
		h, pattern := mux.Handler(r)
		if pattern != "" {
			ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
			defer cancel()
			bounded := r.WithContext(ctx)
			mux.ServeHTTP(w, bounded)
			r.Pattern = bounded.Pattern
			return
		}
		probe := &statusProbe{header: http.Header{}}
		h.ServeHTTP(probe, r)
		switch probe.status {
		case http.StatusMethodNotAllowed:
			methodNotAllowed.problem("").with("Allow", probe.header.Get("Allow")).write(w)
		case http.StatusNotFound:
			missing().write(w)
		default: // a redirect to the clean path
			h.ServeHTTP(w, r)
		}
	})
}

// statusProbe finds out what net/http would answer.
type statusProbe struct {
	header http.Header
	status int
}

func (p *statusProbe) Header() http.Header         { return p.header }
func (p *statusProbe) Write(b []byte) (int, error) { return len(b), nil }
func (p *statusProbe) WriteHeader(status int)      { p.status = status }

// operation is what most operations have in common.
func operation(method, path, id, tag, summary, description string) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Tags: []string{tag}, Summary: summary, Description: description,
		Security: []map[string][]string{{"key": {}}}, MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
		RejectUnknownQueryParameters: true, Metadata: map[string]any{},
	}
}

// register adds an operation whose errors are those of the data layer.
func register[I, O any](a *api, op huma.Operation, f func(context.Context, *I) (*O, error)) {
	huma.Register(a.document, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := f(ctx, in)
		if err == nil {
			return out, nil
		}
		var p *Problem
		if err = failure(err); errors.As(err, &p) {
			note(ctx).Outcome = p.Code
			if p.Status >= 500 {
				a.Logger.Error("a request failed", "operation", op.OperationID, "error", p)
			}
		}
		return nil, err
	})
}

// registerList adds an operation that is read from the replica where there is one: for a
// caller whose changes it has. What fails there, or is not there yet, is asked of the
// primary.
func registerList[I, O any](a *api, op huma.Operation, f func(*api, context.Context, *I) (*O, error)) {
	register(a, op, func(ctx context.Context, in *I) (*O, error) {
		if !a.Replica.Fresh(caller(ctx).ID) {
			return f(a, ctx, in)
		}
		out, err := f(a.standby, ctx, in)
		switch {
		case err != nil && ctx.Err() == nil && pgerr.Standby(err):
			a.Replica.Failed(err)
		case !errors.Is(err, delivery.ErrNotFound):
			return out, err
		}
		return f(a, ctx, in)
	})
}
