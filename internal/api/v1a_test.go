package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery/signing"
)

// What the dispatcher sends is verified with the public key alone, and with the secret
// alone.
func TestDispatchedRequestsCarryV1a(t *testing.T) {
	t.Parallel()
	b := setup(t)
	type request struct {
		header http.Header
		body   []byte
	}
	got := make(chan request, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Header.Clone(), body}
	}))
	defer server.Close()
	created := b.want(201, b.acme, "POST", "/v1/subscriptions", map[string]any{
		"url": server.URL, "v1a": true, "headers": map[string]string{"X-Env": "staging"},
	}).object(b)
	public, err := signing.ParsePublicKey(created["public_key"].(string))
	b.is.NoErr(err)
	secret, err := signing.Parse(created["secret"].(string))
	b.is.NoErr(err)
	b.enqueue("a")
	stop := b.dispatch()
	defer stop()
	r := <-got
	b.is.Equal(r.header.Get("X-Env"), "staging")
	for _, key := range []signing.Key{public, secret} {
		b.is.NoErr(signing.Verify([]signing.Key{key}, signing.HeadersOf(r.header), r.body, time.Now(), 0))
	}
	other := signing.GeneratePrivateKey().Public()
	b.is.True(signing.Verify([]signing.Key{other}, signing.HeadersOf(r.header), r.body, time.Now(), 0) != nil)
}
