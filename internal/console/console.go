package console

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/replica"
)

// Root is the path that everything of the console is under.
const Root = "/console/"

// Config is what a console works with. Pool, Store and Sender are required.
type Config struct {
	Pool  *pgxpool.Pool
	Store *delivery.Store
	// Sender makes test requests.
	Sender delivery.Sender

	// OperatorKey is the text of a key that may do everything. Default: none but those
	// in the database.
	OperatorKey string

	// Database is the name of the console's database among Databases, where a process
	// has several, each with a console of its own. Default: there is one.
	Database  string
	Databases []string

	// Replica is a standby that pages are read from, and ReplicaPool and ReplicaStore are
	// on it. Default: there is none.
	Replica      *replica.Replica
	ReplicaPool  *pgxpool.Pool
	ReplicaStore *delivery.Store

	// Session is how long a session lasts. Default: 12 hours.
	Session time.Duration

	// Search is how long a page looks for deliveries of which its filter leaves few,
	// before it shows what it has. Default: 600 ms.
	Search time.Duration

	// Logger is told what a person should know. Default: slog.Default().
	Logger *slog.Logger
}

const (
	// maxForm bounds what a form may hold, in bytes.
	maxForm = 256 << 10
	// pageTimeout bounds the work for a page, below the server's own limit for the
	// answer, so that there is one.
	pageTimeout = 25 * time.Second
	// rowsPerPage is how long lists are.
	rowsPerPage = 50
)

// Console answers the requests under Root. It is safe for concurrent use.
type Console struct {
	Config
	keys     *keys.Store
	audit    *audit.Log
	operator *[sha256.Size]byte
	attempts *keys.Attempts
	handler  http.Handler
	// standby is the same on the replica; nil for none.
	standby *Console
}

var queries = dbgen.New()

// New returns a console.
func New(c Config) (*Console, error) {
	if c.Pool == nil || c.Store == nil || c.Sender == nil {
		return nil, errors.New("console: needs a Pool, a Store and a Sender")
	}
	c.Session = cmp.Or(c.Session, 12*time.Hour)
	c.Search = cmp.Or(c.Search, 600*time.Millisecond)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	x := &Console{Config: c, keys: keys.New(c.Pool, c.OperatorKey), audit: audit.New(c.Pool)}
	x.attempts = keys.NewAttempts(x.keys)
	if c.OperatorKey != "" {
		sum := sha256.Sum256([]byte(c.OperatorKey))
		x.operator = &sum
	}
	if c.Replica != nil {
		standby := *x
		standby.Pool, standby.Store, standby.audit = c.ReplicaPool, c.ReplicaStore, audit.New(c.ReplicaPool)
		x.standby = &standby
	}
	x.handler = x.outermost(x.routes())
	return x, nil
}

// ServeHTTP answers a request under Root.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

func (c *Console) routes() *http.ServeMux {
	mux := http.NewServeMux()
	asset := func(name, contentType string) { mux.Handle("GET "+Root+"assets/"+name, serveAsset(name, contentType)) }
	asset("console.css", "text/css; charset=utf-8")
	asset("console.js", "text/javascript; charset=utf-8")
	asset("icon.svg", "image/svg+xml")

	mux.HandleFunc("GET "+Root+"sign-in", c.signInPage)
	mux.HandleFunc("POST "+Root+"sessions", c.signIn)
	mux.HandleFunc("POST "+Root+"sign-out", c.signOut)
	mux.HandleFunc("POST "+Root+"theme", c.setTheme)

	show := func(path string, f func(*visit) error) { mux.HandleFunc("GET "+Root+path, c.showing(f)) }
	show("{$}", (*visit).overview)
	show("endpoints", (*visit).endpoints)
	show("endpoints/new", (*visit).newEndpoint)
	show("endpoints/{id}", (*visit).endpoint)
	show("endpoints/{id}/editing", (*visit).editingEndpoint)
	show("endpoints/{id}/streams", (*visit).endpointStreams)
	show("endpoints/{id}/deleting", (*visit).deletingEndpoint)
	show("endpoints/{id}/deliveries/{delivery_id}", (*visit).delivery)
	show("deliveries", (*visit).deliveries)
	show("dead", (*visit).dead)
	show("dead/{id}", (*visit).deadLetters)
	show("dead/{id}/retrying", (*visit).retryingDead)
	show("streams", (*visit).streams)
	show("event-types", (*visit).eventTypes)
	show("event-types/{name}", (*visit).eventType)
	show("event-types/{name}/editing", (*visit).editingEventType)
	show("event-types/{name}/deleting", (*visit).deletingEventType)
	show("new-event-type", (*visit).newEventType) // not among the names
	show("outbox", (*visit).outbox)
	show("keys", (*visit).keyList)
	show("audit", (*visit).auditLog)
	// What counts a replay can make one, and is refused by a standby.
	mux.HandleFunc("GET "+Root+"endpoints/{id}/replaying", c.asking((*visit).replayingEvents))

	act := func(path, name string, f func(*visit) error) { mux.HandleFunc("POST "+Root+path, c.acting(name, f)) }
	act("endpoints/create", "create-subscription", (*visit).createEndpoint)
	act("endpoints/{id}/update", "update-subscription", (*visit).updateEndpoint)
	act("endpoints/{id}/pause", "pause-subscription", (*visit).pauseEndpoint)
	act("endpoints/{id}/enable", "enable-subscription", (*visit).enableEndpoint)
	act("endpoints/{id}/delete", "delete-subscription", (*visit).deleteEndpoint)
	act("endpoints/{id}/rotate-secret", "rotate-secret", (*visit).rotateSecret)
	act("endpoints/{id}/replay", "replay-events", (*visit).replayEvents)
	act("endpoints/{id}/test", "test-subscription", (*visit).testEndpoint)
	act("endpoints/{id}/deliveries/{delivery_id}/retry", "retry-delivery", (*visit).retryDelivery)
	act("endpoints/{id}/deliveries/{delivery_id}/discard", "discard-delivery", (*visit).discardDelivery)
	act("endpoints/{id}/deliveries/{delivery_id}/release", "release-delivery", (*visit).releaseDelivery)
	act("dead/{id}/retry", "retry-deliveries", (*visit).retryDead)
	act("event-types/create", "put-event-type", (*visit).createEventType)
	act("event-types/{name}/update", "put-event-type", (*visit).updateEventType)
	act("event-types/{name}/delete", "delete-event-type", (*visit).deleteEventType)
	act("outbox/retry", "retry-messages", (*visit).retryMessages)
	act("keys/create", "create-key", (*visit).createKey)
	act("keys/{key_id}/revoke", "revoke-key", (*visit).revokeKey)

	mux.HandleFunc("GET "+Root, c.showing(func(*visit) error { return errNoPage }))
	return mux
}

// policy is the content security policy of every answer. Styles and scripts are files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// outermost surrounds every request: headers that all answers have, a bound in time, and
// an answer even to what makes a handler panic.
func (c *Console) outermost(next http.Handler) http.Handler {
	// Beside the tokens: a browser tells where a form stood.
	var origin http.CrossOriginProtection
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.refuse(w, r, nil, errForeignForm)
	}))
	next = origin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
		defer cancel()
		defer func(given *http.Request) { given.Pattern = r.Pattern }(r)
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			c.Logger.Error("a page made its handler panic", "method", r.Method, "path", r.URL.Path, "panic", p)
			c.refuse(w, r, nil, errors.New("panic"))
		}()
		next.ServeHTTP(w, r)
	})
}
