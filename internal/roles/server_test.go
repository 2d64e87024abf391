package roles_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/server"
	"github.com/postlane-go/postlane/internal/settings"
	"github.com/postlane-go/postlane/outbox"
)

// The server does all of its work as one role that owns nothing.
func TestAServerServes(t *testing.T) {
	t.Parallel()
	d := setup(t)
	endpoint := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(endpoint.Close)
	pool := d.as("server")
	snd, err := sender.New(sender.Config{Guard: d.guard()})
	d.is.NoErr(err)
	t.Cleanup(snd.Close)
	keyring, err := delivery.NewKeyring(make([]byte, delivery.KeySize))
	d.is.NoErr(err)
	const key = "the operator's key of this test"
	ctx, stop := context.WithCancel(d.ctx)
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- server.Run(ctx, server.Config{
			Settings: settings.Settings{Listen: "127.0.0.1:0", OperatorKey: key, Keyring: keyring, Relay: settings.RelayWebhooks}, Databases: []server.Database{{Pool: pool, Store: d.store(pool)}},
			Dispatcher: delivery.Config{Sender: snd}, Logger: d.logger(), Ready: func(a net.Addr) { ready <- "http://" + a.String() },
		})
	}()
	var base string
	select {
	case base = <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	d.is.NoErr(err)
	transport := &http.Transport{}
	client := http.Client{Jar: jar, Transport: transport}
	read := func(resp *http.Response, err error) string {
		t.Helper()
		d.is.NoErr(err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		d.is.NoErr(err)
		if resp.StatusCode > 201 {
			t.Fatalf("%s: %d: %s", resp.Request.URL, resp.StatusCode, text)
		}
		return string(text)
	}
	call := func(method, path, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(d.ctx, method, base+path, strings.NewReader(body))
		d.is.NoErr(err)
		r.Header.Set("Authorization", "Bearer "+key)
		return read(client.Do(r))
	}
	d.is.True(strings.Contains(call("GET", "/readyz", ""), `"ready"`))
	call("POST", "/v1/subscriptions", fmt.Sprintf(`{"tenant":"acme","url":%q}`, endpoint.URL))
	call("POST", "/v1/events", `{"tenant":"acme","events":[{"type":"a.b","payload":{}}]}`)
	d.is.NoErr(pgx.BeginFunc(d.ctx, d.as("app"), func(tx pgx.Tx) error {
		_, err := outbox.Stage(d.ctx, tx, outbox.Message{Topic: "a.b", Tenant: "acme", Payload: []byte("{}")})
		return err
	}))
	d.until("SELECT count(*) = 2 FROM postlane.settled WHERE state = 'delivered'") // one of them by way of the outbox
	call("GET", "/metrics", "")

	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(read(client.Get(base + "/console/sign-in")))
	read(client.PostForm(base+"/console/sessions", url.Values{"key": {key}, "token": token[1:]}))
	for _, page := range []string{"", "endpoints", "deliveries", "dead", "streams", "outbox", "keys", "audit"} {
		read(client.Get(base + "/console/" + page))
	}
	transport.CloseIdleConnections()
	stop()
	d.is.NoErr(<-done)
	d.nothingRefused()
}
