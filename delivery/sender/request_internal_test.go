package sender

import (
	"context"
	"net/http"
	"net/url"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery/signing"
)

// TestF28_F30_TheTransportCannotSendItAgain holds that the request has nothing
// to be repeated from, and a length all the same.
func TestF28_F30_TheTransportCannotSendItAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, err := New(Config{})
	is.NoErr(err)
	defer s.Close()
	secret, err := signing.Generate(0)
	is.NoErr(err)
	r := Request{EventID: "e", Attempt: 1, Secrets: []signing.Secret{secret}}
	for _, body := range []string{"", "{}"} {
		r.Body = []byte(body)
		req, err := s.newRequest(context.Background(), &r, &url.URL{Scheme: "https", Host: "example.com"})
		is.NoErr(err)
		is.True(req.GetBody == nil)
		is.Equal(req.ContentLength, int64(len(body)))
		is.Equal(req.Body == http.NoBody, body == "")
	}
}
