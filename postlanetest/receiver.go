package postlanetest

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/signing"
	"github.com/postlane-go/postlane/verify"
)

// Receiver is an endpoint that records what it gets. Requests that are not signed as they
// should be fail the test. It is safe for concurrent use.
type Receiver struct {
	// URL is its address, with http and on loopback: a store accepts it in
	// development only, see NewStore.
	URL string

	t        testing.TB
	verifier *verify.Verifier

	mu       sync.Mutex
	keys     []signing.Key
	answer   func(*verify.Delivery) int
	requests []*verify.Delivery
}

// NewReceiver starts a Receiver that answers 200. It stops when the test ends.
func NewReceiver(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{t: t}
	var err error
	if r.verifier, err = verify.New(verify.Config{Keys: r.keysOf}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

// Subscribe makes a subscription of tenant to the receiver, for the event types (all
// without any), and has the receiver verify by its secret.
func (r *Receiver) Subscribe(store *delivery.Store, tenant string, eventTypes ...string) delivery.Subscription {
	r.t.Helper()
	sub, secret, err := store.CreateSubscription(r.t.Context(), tenant, delivery.Settings{URL: r.URL, EventTypes: eventTypes})
	if err != nil {
		r.t.Fatalf("postlanetest: subscribe: %v", err)
	}
	r.Accept(secret)
	return *sub
}

// Accept adds a key that requests may be signed with. Without any, nothing is verified
// and every request fails the test.
func (r *Receiver) Accept(key signing.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, key)
}

// Answer has further requests answered with the status that f returns. It is called from
// several goroutines at a time.
func (r *Receiver) Answer(f func(d *verify.Delivery) (status int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// Requests returns what has arrived so far, in the order of arrival: every attempt, also
// those that were not answered with success.
func (r *Receiver) Requests() []*verify.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// ServeHTTP is an attempt that arrives.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	d, err := r.verifier.Read(q)
	if errors.Is(err, verify.ErrBody) {
		return // the sender hung up
	}
	if err != nil {
		r.t.Errorf("postlanetest: the receiver got a request that it cannot accept: %v", err)
		http.Error(w, err.Error(), verify.Status(err))
		return
	}
	r.mu.Lock()
	r.requests = append(r.requests, d)
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		w.WriteHeader(answer(d))
	}
}

func (r *Receiver) keysOf(*http.Request) ([]signing.Key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.keys), nil
}
