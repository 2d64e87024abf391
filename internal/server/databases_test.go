package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/server"
	"github.com/postlane-go/postlane/internal/settings"
)

// fleet is a server with two databases on two PostgreSQL servers, each with a tenant's key.
type fleet struct {
	*running
	t *testing.T
	// other is the second PostgreSQL, which can be stopped.
	other *pgtest.Server
	keys  [2]string
	// arrived has the events that reached the endpoint.
	arrived   chan string
	endpoint  string
	delivered [2]int
	stopped   bool
}

var names = [2]string{"first/postlane", "second/postlane"}

// newFleet starts the server, with the second database stopped if away is set.
func newFleet(t *testing.T, away bool) *fleet {
	t.Helper()
	f := &fleet{running: &running{is: is.New(t), done: make(chan error, 1)}, t: t, arrived: make(chan string, 100)}
	ctx := t.Context()
	f.other = pgtest.NewServer(t)
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { f.arrived <- r.Header.Get("Webhook-Id") }))
	t.Cleanup(endpoint.Close)
	f.endpoint = endpoint.URL

	g, err := guard.New(guard.Policy{Development: true})
	f.is.NoErr(err)
	keyring, err := delivery.NewKeyring(make([]byte, delivery.KeySize))
	f.is.NoErr(err)
	snd, err := sender.New(sender.Config{Guard: g})
	f.is.NoErr(err)
	t.Cleanup(snd.Close)
	config := server.Config{
		Settings:   settings.Settings{Listen: "127.0.0.1:0", Mode: settings.Development, OperatorKey: operatorKey, Keyring: keyring},
		Dispatcher: delivery.Config{Sender: snd, Poll: 20 * time.Millisecond}, Logger: slog.New(slog.DiscardHandler),
	}
	for i, pool := range []*pgxpool.Pool{pgtest.New(t), f.other.Pool} {
		store, err := delivery.NewStore(pool, delivery.StoreConfig{Guard: g, Keyring: keyring})
		f.is.NoErr(err)
		_, f.keys[i], err = keys.New(pool, "").Create(ctx, "shop", fmt.Sprintf("tenant-%d", i+1), keys.Write)
		f.is.NoErr(err)
		config.Databases = append(config.Databases, server.Database{Name: names[i], Pool: pool, Store: store})
	}
	if away {
		f.is.NoErr(f.other.Stop())
	}
	ready := make(chan net.Addr, 1)
	config.Ready = func(a net.Addr) { ready <- a }
	running, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	go func() { f.done <- server.Run(running, config) }()
	select {
	case a := <-ready:
		f.url = "http://" + a.String()
	case err := <-f.done:
		t.Fatal(err)
	}
	transport := &http.Transport{}
	f.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		f.end()
		transport.CloseIdleConnections()
	})
	return f
}

// end stops the server, once.
func (f *fleet) end() {
	if f.stopped {
		return
	}
	f.stopped = true
	f.stop()
	f.is.NoErr(<-f.done)
}

// call makes a request with a key, to a database if it is named, and decodes the answer.
func (f *fleet) call(key, database, method, path, body string) (int, map[string]any, http.Header) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	f.is.NoErr(err)
	r.Header.Set("Authorization", "Bearer "+key)
	if database != "" {
		r.Header.Set("Postlane-Database", database)
	}
	resp, err := f.client.Do(r)
	f.is.NoErr(err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	f.is.NoErr(err)
	var v map[string]any
	if len(bytes.TrimSpace(raw)) > 0 && strings.Contains(resp.Header.Get("Content-Type"), "json") {
		f.is.NoErr(json.Unmarshal(raw, &v))
	}
	return resp.StatusCode, v, resp.Header
}

// subscribe makes a tenant's subscription, whose id it returns.
func (f *fleet) subscribe(i int) string {
	f.t.Helper()
	status, v, _ := f.call(f.keys[i], "", "POST", "/v1/subscriptions", fmt.Sprintf(`{"url":%q}`, f.endpoint))
	f.is.Equal(status, 201)
	return v["id"].(string)
}

// deliver sends an event of a tenant, which has to arrive and be settled.
func (f *fleet) deliver(i int, id string) {
	f.t.Helper()
	status, _, _ := f.call(f.keys[i], "", "POST", "/v1/events", fmt.Sprintf(`{"events":[{"id":%q,"type":"a.b","payload":{}}]}`, id))
	f.is.Equal(status, 201)
	f.is.Equal(<-f.arrived, id)
	f.delivered[i]++
	settled := fmt.Sprintf(`postlane_deliveries_settled_total{database="%s",outcome="delivered",state="delivered"} %d`, names[i], f.delivered[i])
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		if _, text := f.do("GET", "/metrics", ""); strings.Contains(text, settled) {
			return
		}
	}
}

// until reads the readiness until its databases are as told.
func (f *fleet) until(status int, first, second string) {
	f.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		got, v, _ := f.call("", "", "GET", "/readyz", "")
		list := v["databases"].([]any)
		if got == status && list[0].(map[string]any)["status"] == first && list[1].(map[string]any)["status"] == second {
			return
		}
	}
}

func TestSeveralDatabasesShareTheTenants(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false)
	f.until(200, "ready", "ready")
	var subs [2]string
	for i := range subs {
		subs[i] = f.subscribe(i)
		f.deliver(i, fmt.Sprintf("e%d", i))
		status, v, _ := f.call(f.keys[i], "", "GET", "/v1/subscriptions", "")
		f.is.Equal(status, 200)
		f.is.Equal(len(v["data"].([]any)), 1) // its own, and nothing of the other database
		status, _, _ = f.call(f.keys[1-i], "", "GET", "/v1/subscriptions/"+subs[i], "")
		f.is.Equal(status, 404)
	}

	// The operator's key opens both.
	status, v, _ := f.call(operatorKey, "", "GET", "/v1/subscriptions", "")
	f.is.Equal(status, 400)
	f.is.True(strings.Contains(v["detail"].(string), "first/postlane, second/postlane"))
	status, _, _ = f.call(operatorKey, "third/postlane", "GET", "/v1/subscriptions", "")
	f.is.Equal(status, 400)
	for i, sub := range subs {
		status, v, _ = f.call(operatorKey, names[i], "GET", "/v1/subscriptions", "")
		f.is.Equal(status, 200)
		f.is.Equal(v["data"].([]any)[0].(map[string]any)["id"], sub)
		status, v, _ = f.call(operatorKey, "", "GET", "/v1/subscriptions/"+sub+"/deliveries", "")
		f.is.Equal(status, 200)
		f.is.Equal(len(v["data"].([]any)), 1)
	}
	status, _, _ = f.call(operatorKey, "", "GET", "/v1/subscriptions/sub_1", "")
	f.is.Equal(status, 404)
	status, text := f.do("GET", "/metrics", "")
	f.is.Equal(status, 200)
	for _, name := range names {
		f.is.True(strings.Contains(text, `postlane_listening{database="`+name+`"} `))
	}
	for _, path := range []string{"/openapi.json", "/docs"} {
		status, _ := f.do("GET", path, "")
		f.is.Equal(status, 200)
	}
	for _, wrong := range []string{"nonsense", "plk_AAAA", ""} {
		status, _, _ := f.call(wrong, "", "GET", "/v1/subscriptions", "")
		f.is.Equal(status, 401)
	}

	// A revocation holds at once, although it is remembered where the key is.
	status, made, _ := f.call(operatorKey, names[1], "POST", "/v1/keys", `{"name":"x","tenant":"tenant-2","scope":"read"}`)
	f.is.Equal(status, 201)
	key := made["key"].(string)
	status, _, _ = f.call(key, "", "GET", "/v1/subscriptions", "")
	f.is.Equal(status, 200)
	status, _, _ = f.call(operatorKey, names[1], "POST", "/v1/keys/"+made["id"].(string)+"/revoke", "")
	f.is.True(status < 300)
	status, _, _ = f.call(key, "", "GET", "/v1/subscriptions", "")
	f.is.Equal(status, 401)
}

// One database stops: the other's tenants do not see it, and its own are told to wait.
func TestADatabaseThatIsAwayStopsNoOther(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false)
	f.until(200, "ready", "ready")
	f.subscribe(0)
	f.subscribe(1)
	f.deliver(1, "before")
	f.is.NoErr(f.other.Stop())
	f.until(200, "ready", "not ready")
	f.deliver(0, "during")
	status, _, _ := f.call(f.keys[0], "", "GET", "/v1/subscriptions", "")
	f.is.Equal(status, 200)

	status, _, header := f.call(f.keys[1], "", "GET", "/v1/subscriptions", "")
	f.is.Equal(status, 503)
	f.is.True(header.Get("Retry-After") != "")
	// Nobody can tell whether this is a key.
	status, _, header = f.call(newKey(f), "", "GET", "/v1/subscriptions", "")
	f.is.Equal(status, 503)
	f.is.True(header.Get("Retry-After") != "")
	status, text := f.do("GET", "/metrics", "")
	f.is.Equal(status, 200)
	f.is.True(strings.Contains(text, `postlane_pool_connections{database="second/postlane"`))

	f.other.Start()
	f.until(200, "ready", "ready")
	f.deliver(1, "after")
}

// newKey is a key that was revoked in the first database, and so is in none.
func newKey(f *fleet) string {
	f.t.Helper()
	status, made, _ := f.call(operatorKey, names[0], "POST", "/v1/keys", `{"name":"x","tenant":"tenant-1","scope":"read"}`)
	f.is.Equal(status, 201)
	status, _, _ = f.call(operatorKey, names[0], "POST", "/v1/keys/"+made["id"].(string)+"/revoke", "")
	f.is.True(status < 300)
	return made["key"].(string)
}

func TestServesWhileADatabaseIsAwayFromTheStart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, true)
	f.until(200, "ready", "not ready")
	f.subscribe(0)
	f.deliver(0, "first")
	f.other.Start()
	f.until(200, "ready", "ready")
	f.subscribe(1)
	f.deliver(1, "second")
}

// The console of each database, in one browser.
func TestConsolesOfSeveralDatabases(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false)
	f.until(200, "ready", "ready")
	subs := [2]string{f.subscribe(0), f.subscribe(1)}
	jar, err := cookiejar.New(nil)
	f.is.NoErr(err)
	f.client.Jar = jar
	page := func(path string) string {
		t.Helper()
		resp, err := f.client.Get(f.url + "/console/" + path)
		f.is.NoErr(err)
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		f.is.NoErr(err)
		return string(raw)
	}
	post := func(path string, values url.Values) int {
		t.Helper()
		resp, err := f.client.PostForm(f.url+"/console/"+path, values)
		f.is.NoErr(err)
		resp.Body.Close()
		return resp.StatusCode
	}
	token := regexp.MustCompile(`name="token" value="([^"]+)"`)
	signIn := func(key string) int {
		t.Helper()
		return post("sessions", url.Values{"key": {key}, "token": token.FindStringSubmatch(page("sign-in"))[1:]})
	}
	shows := func(i int) {
		t.Helper()
		text := page("endpoints")
		f.is.True(strings.Contains(text, subs[i]) && !strings.Contains(text, subs[1-i]))
	}
	f.is.Equal(signIn("nonsense"), 401)
	f.is.Equal(signIn(f.keys[1]), 200)
	shows(1)
	f.is.True(!strings.Contains(page(""), names[0])) // a tenant has one, and need not know

	f.is.Equal(post("sign-out", url.Values{"token": token.FindStringSubmatch(page(""))[1:]}), 200)
	f.is.Equal(signIn(operatorKey), 200)
	shows(1) // as shown last
	f.is.True(strings.Contains(page(""), "<option selected>"+names[1]))
	f.is.Equal(post("database", url.Values{"database": {names[0]}}), 200)
	f.is.True(strings.Contains(page(""), "<h1>Sign in</h1>")) // a session of its own
	f.is.Equal(signIn(operatorKey), 200)
	shows(0)
	f.is.Equal(post("database", url.Values{"database": {names[1]}}), 200)
	shows(1) // which goes on
	f.is.Equal(post("database", url.Values{"database": {"third/postlane"}}), 404)

	// From a database that goes away one gets to another.
	f.is.NoErr(f.other.Stop())
	f.until(200, "ready", "not ready")
	f.is.True(strings.Contains(page("endpoints"), "The database does not answer"))
	f.is.Equal(signIn(operatorKey), 200)
	shows(0)
}
