package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
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
	"github.com/postlane-go/postlane/internal/api"
	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const operatorKey = "the operator's key of these tests"

// bundle is an API on a database of its own, with a key of each kind.
type bundle struct {
	t     testing.TB
	is    *is.I
	ctx   context.Context
	pool  *pgxpool.Pool
	store *delivery.Store
	keys  *keys.Store
	api   http.Handler
	// address is where requests come from; "": each from another place.
	address string
	asked   atomic.Int64
	// acme and other may write for their tenants, reader may read for acme.
	acme, other, reader string
}

func setup(t testing.TB, change ...func(*api.Config)) *bundle {
	t.Helper()
	return setupPolicy(t, guard.Policy{Development: true}, change...)
}

func setupPolicy(t testing.TB, policy guard.Policy, change ...func(*api.Config)) *bundle {
	t.Helper()
	return setupOn(t, pgtest.New(t), policy, change...)
}

func setupOn(t testing.TB, pool *pgxpool.Pool, policy guard.Policy, change ...func(*api.Config)) *bundle {
	t.Helper()
	b := &bundle{t: t, is: is.New(t), ctx: t.Context(), pool: pool}
	g, err := guard.New(policy)
	b.is.NoErr(err)
	keyring, err := delivery.NewKeyring(make([]byte, delivery.KeySize))
	b.is.NoErr(err)
	b.store, err = delivery.NewStore(b.pool, delivery.StoreConfig{Guard: g, Keyring: keyring})
	b.is.NoErr(err)
	snd, err := sender.New(sender.Config{Guard: g, Timeout: 10 * time.Second})
	b.is.NoErr(err)
	t.Cleanup(snd.Close)
	config := api.Config{
		Pool: b.pool, Store: b.store, Sender: snd, OperatorKey: operatorKey, CursorKey: keyring.Derive("cursors"), Rate: 1e6,
		Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	}
	for _, f := range change {
		f(&config)
	}
	b.api, err = api.New(config)
	b.is.NoErr(err)
	b.keys = keys.New(b.pool, "")
	b.acme, b.other, b.reader = b.key("acme", keys.Write), b.key("other", keys.Write), b.key("acme", keys.Read)
	return b
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func (b *bundle) key(tenant string, scope keys.Scope) string {
	b.t.Helper()
	_, text, err := b.keys.Create(b.ctx, "a test", tenant, scope)
	b.is.NoErr(err)
	return text
}

// answer is what came back, read.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do makes a request; body is text, or anything that becomes JSON.
func (b *bundle) do(key, method, path string, body any) answer {
	b.t.Helper()
	var reader io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(body)
	default:
		text, err := json.Marshal(body)
		b.is.NoErr(err)
		reader = bytes.NewReader(text)
	}
	r := httptest.NewRequestWithContext(b.ctx, method, path, reader)
	r.Header.Set("Content-Type", "application/json")
	if r.RemoteAddr = b.address; b.address == "" {
		n := b.asked.Add(1)
		r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1024", n/256, n%256)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	w := httptest.NewRecorder()
	b.api.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.Bytes()}
}

// want makes a request and fails the test unless it is answered with the status.
func (b *bundle) want(status int, key, method, path string, body any) answer {
	b.t.Helper()
	got := b.do(key, method, path, body)
	if got.status != status {
		b.t.Fatalf("%s %s: %d and not %d: %s", method, path, got.status, status, got.body)
	}
	return got
}

// object reads a body that is a JSON object.
func (a answer) object(b *bundle) map[string]any {
	b.t.Helper()
	var v map[string]any
	if err := json.Unmarshal(a.body, &v); err != nil {
		b.t.Fatalf("%v: %s", err, a.body)
	}
	return v
}

// refused fails the test unless the answer is the problem of a code, and returns its text.
func (b *bundle) refused(code string, a answer) string {
	b.t.Helper()
	if got := a.object(b)["code"]; got != code || a.header.Get("Content-Type") != "application/problem+json" {
		b.t.Fatalf("answered %d %v (%s) and not %s: %s", a.status, got, a.header.Get("Content-Type"), code, a.body)
	}
	return string(a.body)
}

// data reads the items of a list.
func (b *bundle) data(a answer) []any {
	b.t.Helper()
	list, ok := a.object(b)["data"].([]any)
	if !ok {
		b.t.Fatalf("data is not a list: %s", a.body)
	}
	return list
}

const endpoint = "http://127.0.0.1:8099/hook"

// subscribe adds a subscription of acme through the API and returns its path.
func (b *bundle) subscribe(settings map[string]any) string {
	b.t.Helper()
	body := map[string]any{"url": endpoint}
	maps.Copy(body, settings)
	return b.want(201, b.acme, "POST", "/v1/subscriptions", body).header.Get("Location")
}

// id is the id at the end of a path.
func (b *bundle) id(path string) delivery.SubscriptionID {
	b.t.Helper()
	id, err := delivery.ParseSubscriptionID(path[strings.LastIndexByte(path, '/')+1:])
	b.is.NoErr(err)
	return id
}

// enqueue writes events of acme, one an asset.
func (b *bundle) enqueue(assets ...string) []delivery.Enqueued {
	b.t.Helper()
	events := make([]delivery.Event, len(assets))
	for i, asset := range assets {
		events[i] = delivery.Event{Tenant: "acme", Type: "thing.changed", Asset: asset, Payload: []byte(`{"a":1}`)}
	}
	var enqueued []delivery.Enqueued
	b.is.NoErr(pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) (err error) {
		enqueued, err = delivery.Enqueue(b.ctx, tx, events...)
		return err
	}))
	return enqueued
}

// claim takes up to n deliveries into flight.
func (b *bundle) claim(n int) []delivery.Claim {
	b.t.Helper()
	claims, err := b.store.Claim(b.ctx, delivery.ClaimRequest{Claimant: "test", Max: n, MaxInFlight: 1000, Lease: time.Minute})
	b.is.NoErr(err)
	return claims
}

// settle settles claims with a verdict; a failed one is gone at once, without another
// attempt, but does not blame its subscription.
func (b *bundle) settle(v delivery.Verdict, claims ...delivery.Claim) {
	b.t.Helper()
	results := make([]delivery.Result, len(claims))
	for i := range claims {
		results[i] = delivery.Result{
			Claim: &claims[i], Verdict: v, Gone: v == delivery.Failed, Blameless: true,
			Attempt: delivery.AttemptEvidence{Started: time.Now(), Outcome: "http_status", Status: 500, Answered: true},
		}
	}
	_, err := b.store.Settle(b.ctx, results)
	b.is.NoErr(err)
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.ctx, sql, args...)
	b.is.NoErr(err)
}

func one[T any](b *bundle, sql string, args ...any) (v T) {
	b.t.Helper()
	b.is.NoErr(b.pool.QueryRow(b.ctx, sql, args...).Scan(&v))
	return v
}
