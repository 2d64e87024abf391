package console

import (
	"context"
	"crypto/tls"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/pgtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	closeBrowser()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const operatorKey = "the operator's key of these tests"

// site is a console on a database of its own, and an endpoint.
type site struct {
	t       testing.TB
	is      *is.I
	ctx     context.Context
	pool    *pgxpool.Pool
	store   *delivery.Store
	keys    *keys.Store
	console *Console
	url     string // of the server, without a path
	// endpoint answers tests with status and body.
	endpoint string
	status   atomic.Int64
	body     atomic.Pointer[string]
	requests atomic.Int64
}

func setup(t testing.TB, change ...func(*Config)) *site {
	t.Helper()
	return setupOn(t, pgtest.New(t), change...)
}

func setupOn(t testing.TB, pool *pgxpool.Pool, change ...func(*Config)) *site {
	t.Helper()
	s := &site{t: t, is: is.New(t), ctx: t.Context(), pool: pool, keys: keys.New(pool, "")}
	g, err := guard.New(guard.Policy{Development: true})
	s.is.NoErr(err)
	s.store, err = delivery.NewStore(pool, delivery.StoreConfig{Guard: g})
	s.is.NoErr(err)
	snd, err := sender.New(sender.Config{Guard: g, Timeout: 2 * time.Second})
	s.is.NoErr(err)
	t.Cleanup(snd.Close)
	c := Config{Pool: pool, Store: s.store, Sender: snd, OperatorKey: operatorKey, Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil))}
	for _, f := range change {
		f(&c)
	}
	s.console, err = New(c)
	s.is.NoErr(err)
	mux := http.NewServeMux()
	mux.Handle(Root, s.console)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	s.status.Store(http.StatusOK)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.requests.Add(1)
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(int(s.status.Load()))
		if body := s.body.Load(); body != nil {
			_, _ = io.WriteString(w, *body)
		}
	}))
	t.Cleanup(receiver.Close)
	s.endpoint = receiver.URL
	return s
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func (s *site) key(tenant string, scope keys.Scope) string {
	s.t.Helper()
	name := "operators"
	if tenant != "" {
		name = tenant
	}
	_, text, err := s.keys.Create(s.ctx, name+", "+string(scope), tenant, scope)
	s.is.NoErr(err)
	return text
}

// subscribe adds a subscription of a tenant; change may edit its settings.
func (s *site) subscribe(tenant, path string, change ...func(*delivery.Settings)) *delivery.Subscription {
	s.t.Helper()
	settings := delivery.Settings{URL: s.endpoint + path}
	if strings.HasPrefix(path, "https:") {
		settings.URL = path
	}
	for _, f := range change {
		f(&settings)
	}
	sub, _, err := s.store.CreateSubscription(s.ctx, tenant, settings)
	s.is.NoErr(err)
	return sub
}

// enqueue writes an event for each of the assets, in one transaction, and returns the
// ids of their deliveries.
func (s *site) enqueue(tenant, kind string, assets ...string) []delivery.ID {
	s.t.Helper()
	events := make([]delivery.Event, len(assets))
	for i, a := range assets {
		events[i] = delivery.Event{Tenant: tenant, Type: kind, Asset: a, Payload: []byte(`{"secret":"payload"}`)}
	}
	ids := make([]delivery.ID, len(assets))
	s.is.NoErr(pgx.BeginFunc(s.ctx, s.pool, func(tx pgx.Tx) error {
		enqueued, err := delivery.Enqueue(s.ctx, tx, events...)
		for i := range enqueued {
			ids[i] = delivery.ID(enqueued[i].Seq)
		}
		return err
	}))
	return ids
}

// claim takes what may be sent.
func (s *site) claim(n int) []delivery.Claim {
	s.t.Helper()
	claims, err := s.store.Claim(s.ctx, delivery.ClaimRequest{Claimant: "host-1 worker", Max: n, MaxInFlight: 1000, Lease: time.Minute})
	s.is.NoErr(err)
	return claims
}

// settle claims everything that may be sent and settles it as f says.
func (s *site) settle(f func(*delivery.Result)) int {
	s.t.Helper()
	claims := s.claim(1000)
	s.settleClaims(claims, f)
	return len(claims)
}

func (s *site) settleClaims(claims []delivery.Claim, f func(*delivery.Result)) {
	s.t.Helper()
	results := make([]delivery.Result, len(claims))
	for i := range claims {
		results[i] = delivery.Result{Claim: &claims[i], Verdict: delivery.Succeeded, Attempt: delivery.AttemptEvidence{
			Started: time.Now().Add(-80 * time.Millisecond), Duration: 80 * time.Millisecond, Outcome: "delivered", Status: 200, Answered: true,
			Answer: []byte("ok"), Headers: []byte("Content-Length: 2\n"),
			DNS: 4 * time.Millisecond, Connect: 9 * time.Millisecond, TLS: 21 * time.Millisecond, FirstByte: 77 * time.Millisecond,
		}}
		f(&results[i])
	}
	_, err := s.store.Settle(s.ctx, results)
	s.is.NoErr(err)
}

func succeed(*delivery.Result) {}

// refused is a failed attempt without an answer, the next one in an hour.
func refused(r *delivery.Result) {
	r.Verdict, r.Delay = delivery.Failed, time.Hour
	r.Attempt = delivery.AttemptEvidence{Started: time.Now(), Duration: 3 * time.Millisecond, Outcome: "connection_refused", Error: "dial tcp 10.1.2.3:443: connection refused", DNS: time.Millisecond}
}

// answered is a failed attempt with an answer.
func answered(status int, body string) func(*delivery.Result) {
	return func(r *delivery.Result) {
		r.Verdict, r.Delay = delivery.Failed, time.Hour
		r.Attempt.Outcome, r.Attempt.Status, r.Attempt.Answer = "http_status", status, []byte(body)
		r.Attempt.Headers = []byte("Content-Type: text/html\nServer: <b>bold</b>\n")
	}
}

// dies makes a delivery's first failure its last.
func dies(set *delivery.Settings) { set.MaxAttempts = 1 }

func holds(set *delivery.Settings) { set.MaxAttempts, set.OnDead = 1, delivery.Hold }

func (s *site) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(s.ctx, sql, args...)
	s.is.NoErr(err)
}

// one reads one value.
func one[T any](s *site, sql string, args ...any) (v T) {
	s.t.Helper()
	s.is.NoErr(s.pool.QueryRow(s.ctx, sql, args...).Scan(&v))
	return v
}

// visitor is a browser without scripts.
type visitor struct {
	*site
	client http.Client
}

func (s *site) visitor() *visitor {
	jar, err := cookiejar.New(nil)
	s.is.NoErr(err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	return &visitor{s, http.Client{Jar: jar, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// signedIn is a visitor who has signed in with a key.
func (s *site) signedIn(key string) *visitor {
	s.t.Helper()
	v := s.visitor()
	if got := v.signIn(key); got.status != http.StatusSeeOther {
		s.t.Fatalf("could not sign in: %d %s", got.status, got.body)
	}
	return v
}

func (v *visitor) signIn(key string) reply {
	v.t.Helper()
	return v.send("sessions", url.Values{"key": {key}, "token": {v.get("sign-in").token()}})
}

// reply is an answer, read.
type reply struct {
	status int
	header http.Header
	body   string
	path   string
}

func (v *visitor) do(method, path string, form url.Values) reply {
	v.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	address := v.url + Root + strings.TrimPrefix(path, Root)
	r, err := http.NewRequestWithContext(v.ctx, method, address, body)
	v.is.NoErr(err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := v.client.Do(r)
	v.is.NoErr(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	v.is.NoErr(err)
	return reply{answer.StatusCode, answer.Header, string(text), path}
}

func (v *visitor) get(path string) reply { v.t.Helper(); return v.do(http.MethodGet, path, nil) }

// send posts a form as it is.
func (v *visitor) send(path string, form url.Values) reply {
	v.t.Helper()
	return v.do(http.MethodPost, path, form)
}

// press posts a form with the session's token.
func (v *visitor) press(path string, pairs ...string) reply {
	v.t.Helper()
	form := url.Values{"token": {v.get("").token()}}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return v.send(path, form)
}

var tokens = regexp.MustCompile(`name="token" value="([^"]+)"`)

func (p reply) token() string {
	if m := tokens.FindStringSubmatch(p.body); m != nil {
		return m[1]
	}
	return ""
}

// has fails the test unless the page is a good one with all of these in its text.
func (v *visitor) has(path string, texts ...string) reply {
	v.t.Helper()
	p := v.get(path)
	v.is.Equal(p.status, http.StatusOK)
	v.in(p, texts...)
	return p
}

func (v *visitor) in(p reply, texts ...string) {
	v.t.Helper()
	text := p.text()
	for _, want := range texts {
		if !strings.Contains(text, want) {
			v.t.Errorf("%s does not say %q:\n%s", p.path, want, text)
		}
	}
}

// next is the address of the page that follows, "" on the last.
func (p reply) next() string {
	if m := regexp.MustCompile(`href="([^"]+)" rel="next"`).FindStringSubmatch(p.body); m != nil {
		return html.UnescapeString(m[1])
	}
	return ""
}

// text is what a page says, without its tags.
func (p reply) text() string {
	text := regexp.MustCompile(`(?s)<[^>]*>`).ReplaceAllString(strings.ReplaceAll(p.body, "<wbr>", ""), " ")
	return strings.Join(strings.Fields(html.UnescapeString(text)), " ")
}

// seen is where an action sends the browser, with what it says there.
func (v *visitor) seen(p reply) reply {
	v.t.Helper()
	if p.status != http.StatusSeeOther {
		v.t.Fatalf("%s: %d and not a redirect: %s", p.path, p.status, p.text())
	}
	return v.get(p.header.Get("Location"))
}

// state is the state of a delivery.
func (s *site) state(sub *delivery.Subscription, id delivery.ID) delivery.DeliveryState {
	s.t.Helper()
	d, err := s.store.Delivery(s.ctx, sub.ID, id)
	s.is.NoErr(err)
	return d.State
}

// everything is every row that anybody could change by a page.
func (s *site) everything() string {
	s.t.Helper()
	text := ""
	for _, table := range []string{
		"subscriptions", "subscription_secrets", "events", "deliveries", "leases", "settled", "attempts", "revivals", "api_keys", "audit", "console_sessions", "event_types",
	} {
		var rows *string
		s.is.NoErr(s.pool.QueryRow(s.ctx, fmt.Sprintf(
			`SELECT string_agg(t.ctid::text || ' ' || t.xmin::text || ' ' || t::text, E'\n' ORDER BY t.ctid) FROM postlane.%s t`, table)).Scan(&rows))
		text += table + ":\n"
		if rows != nil {
			text += *rows + "\n"
		}
	}
	return text
}

// visit is an operator's, for what pages read.
func (s *site) visit(t *testing.T) *visit {
	t.Helper()
	r := httptest.NewRequestWithContext(s.ctx, http.MethodGet, Root, nil)
	return &visit{Console: s.console, w: httptest.NewRecorder(), r: r, ctx: s.ctx, who: &keys.Caller{ID: "operator", Scope: keys.Write}}
}

// until asks again and again until a query returns true.
func (s *site) until(sql string, args ...any) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !one[bool](s, sql, args...) {
		select {
		case <-s.ctx.Done():
			s.t.Fatal(sql, ": never")
		case <-tick.C:
		}
	}
}
