package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/server"
	"github.com/postlane-go/postlane/internal/settings"
	"github.com/postlane-go/postlane/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const operatorKey = "the operator's key of these tests"

// running is a server.
type running struct {
	is     *is.I
	url    string
	client *http.Client
	stop   context.CancelFunc
	done   chan error
}

// options are what a test may want otherwise.
type options struct {
	pool   *pgxpool.Pool // default: of a database of its own
	policy guard.Policy
	sender sender.Config
	relay  string
	// replica is a standby to read from, and logger is told what happens.
	replica *pgxpool.Pool
	logger  *slog.Logger
}

func start(t *testing.T, change ...func(*options)) *running {
	t.Helper()
	r := &running{is: is.New(t), done: make(chan error, 1)}
	o := options{policy: guard.Policy{Development: true}, logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&o)
	}
	pool := o.pool
	if pool == nil {
		pool = pgtest.New(t)
	}
	g, err := guard.New(o.policy)
	r.is.NoErr(err)
	keyring, err := delivery.NewKeyring(make([]byte, delivery.KeySize))
	r.is.NoErr(err)
	store, err := delivery.NewStore(pool, delivery.StoreConfig{Guard: g, Keyring: keyring})
	r.is.NoErr(err)
	o.sender.Guard = g
	snd, err := sender.New(o.sender)
	r.is.NoErr(err)
	t.Cleanup(snd.Close)
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	ready := make(chan net.Addr, 1)
	go func() {
		r.done <- server.Run(ctx, server.Config{
			Settings:  settings.Settings{Listen: "127.0.0.1:0", Mode: settings.Development, OperatorKey: operatorKey, Keyring: keyring, Relay: o.relay},
			Databases: []server.Database{{Pool: pool, Store: store, Replica: o.replica}}, Dispatcher: delivery.Config{Sender: snd}, Logger: o.logger,
			Ready: func(a net.Addr) { ready <- a },
		})
	}()
	select {
	case a := <-ready:
		r.url = "http://" + a.String()
	case err := <-r.done:
		t.Fatal(err)
	}
	transport := &http.Transport{}
	r.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
	})
	return r
}

// do makes a request with the operator's key.
func (r *running) do(method, path, body string) (status int, text string) {
	return r.as(operatorKey, method, path, body)
}

// as makes a request with a key.
func (r *running) as(key, method, path, body string) (status int, text string) {
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	r.is.NoErr(err)
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := r.client.Do(req)
	r.is.NoErr(err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	r.is.NoErr(err)
	return resp.StatusCode, string(raw)
}

// What is served where, and the limit of a request's header.
func TestServes(t *testing.T) {
	t.Parallel()
	r := start(t)
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/openapi.json": 200, "/openapi-3.0.json": 200, "/docs": 200, "/v1/subscriptions": 200, "/v1/": 404, "/v1/x": 404,
	} {
		status, text := r.do("GET", path, "")
		if status != want {
			t.Errorf("GET %s: %d and not %d: %s", path, status, want, text)
		}
	}
	resp, err := r.client.Get(r.url + "/v1/subscriptions")
	r.is.NoErr(err)
	resp.Body.Close()
	r.is.Equal(resp.StatusCode, 401)
	req, err := http.NewRequest("GET", r.url+"/v1/subscriptions", nil)
	r.is.NoErr(err)
	req.Header.Set("X-Large", strings.Repeat("x", 40<<10))
	resp, err = r.client.Do(req)
	r.is.NoErr(err)
	resp.Body.Close()
	r.is.Equal(resp.StatusCode, http.StatusRequestHeaderFieldsTooLarge)
	r.stop()
	r.is.NoErr(<-r.done)
}

// The metrics are an operator's to read, and tell what the process did.
func TestMetrics(t *testing.T) {
	t.Parallel()
	r := start(t)
	endpoint := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer endpoint.Close()
	status, _ := r.do("POST", "/v1/subscriptions", fmt.Sprintf(`{"url":%q,"tenant":"acme"}`, endpoint.URL))
	r.is.Equal(status, 201)
	status, _ = r.do("POST", "/v1/events", `{"tenant":"acme","events":[{"type":"a.b","payload":{}}]}`)
	r.is.Equal(status, 201)
	r.do("GET", "/v1/subscriptions/nonsense", "")
	r.do("GET", "/console/sign-in", "")
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		status, text := r.do("GET", "/metrics", "")
		r.is.Equal(status, 200)
		if strings.Contains(text, `postlane_deliveries_settled_total{outcome="delivered",state="delivered"} 1`) {
			for _, line := range []string{
				`postlane_http_requests_total{route="POST /v1/subscriptions",status="201"} 1`,
				`postlane_http_requests_total{route="GET /v1/subscriptions/{id}",status="404"} 1`,
				`postlane_http_requests_total{route="GET /console/sign-in",status="200"} 1`,
				"postlane_claimed_deliveries_total 1", "postlane_listening 1", "postlane_build_info{", "postlane_pool_connections_max ",
			} {
				if !strings.Contains(text, "\n"+line) {
					t.Errorf("%s is not in\n%s", line, text)
				}
			}
			r.is.True(!strings.Contains(text, "acme") && !strings.Contains(text, endpoint.URL) && !strings.Contains(text, "a.b"))
			break
		}
		<-tick.C
	}
	status, made := r.do("POST", "/v1/keys", `{"name":"prometheus","operator":true,"scope":"read"}`)
	r.is.Equal(status, 201)
	var reader struct{ Key string }
	r.is.NoErr(json.Unmarshal([]byte(made), &reader))
	status, made = r.do("POST", "/v1/keys", `{"name":"a tenant","tenant":"acme","scope":"write"}`)
	r.is.Equal(status, 201)
	var tenant struct{ Key string }
	r.is.NoErr(json.Unmarshal([]byte(made), &tenant))
	for key, want := range map[string]int{reader.Key: 200, tenant.Key: 403, "": 401} {
		req, err := http.NewRequest("GET", r.url+"/metrics", nil)
		r.is.NoErr(err)
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := r.client.Do(req)
		r.is.NoErr(err)
		resp.Body.Close()
		r.is.Equal(resp.StatusCode, want)
	}
	r.stop()
	r.is.NoErr(<-r.done)
}

// A message that the application stages reaches an endpoint as an event, where the server
// is told to relay.
func TestRelaysTheOutbox(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	r := start(t, func(o *options) { o.pool, o.relay = pool, settings.RelayWebhooks })
	arrived := make(chan *http.Request, 1)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) { arrived <- request }))
	defer endpoint.Close()
	status, _ := r.do("POST", "/v1/subscriptions", fmt.Sprintf(`{"url":%q,"tenant":"acme"}`, endpoint.URL))
	r.is.Equal(status, 201)
	r.is.NoErr(pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := outbox.Stage(t.Context(), tx, outbox.Message{ID: "staged", Topic: "invoice.paid", Queue: "i7", Tenant: "acme", Payload: []byte("{}")})
		return err
	}))
	request := <-arrived
	r.is.Equal(request.Header.Get("Webhook-Id"), "staged")
	r.is.Equal(request.Header.Get("Postlane-Asset"), "i7")
	_, text := r.do("GET", "/metrics", "")
	r.is.True(strings.Contains(text, "\npostlane_outbox_published_total "))
	r.stop()
	r.is.NoErr(<-r.done)
}

// A server that is told to stop answers what it has begun, and takes nothing new.
func TestShutdownDrains(t *testing.T) {
	t.Parallel()
	r := start(t)
	entered, release := make(chan struct{}), make(chan struct{})
	endpoint := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-release
	}))
	defer endpoint.Close()
	status, text := r.do("POST", "/v1/subscriptions", fmt.Sprintf(`{"url":%q,"tenant":"acme"}`, endpoint.URL))
	r.is.Equal(status, 201)
	var sub struct{ ID string }
	r.is.NoErr(json.Unmarshal([]byte(text), &sub))
	answered := make(chan int, 1)
	go func() {
		status, _ := r.do("POST", "/v1/subscriptions/"+sub.ID+"/test", "")
		answered <- status
	}()
	<-entered
	r.stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			break // nothing new is taken
		}
		conn.Close()
		<-tick.C
	}
	close(release)
	r.is.Equal(<-answered, 200)
	r.is.NoErr(<-r.done)
}
