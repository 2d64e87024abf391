package sender_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/delivery/signing"
)

// A receiver verifies the raw body before it reads a word of it.
func ExampleSender_Send() {
	secret, _ := signing.Generate(0)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := signing.Verify([]signing.Key{secret}, signing.HeadersOf(r.Header), body, time.Now(), 0); err != nil {
			http.Error(w, "bad signature", http.StatusUnauthorized)
			return
		}
		fmt.Println("received", r.Header.Get("postlane-event-type"), string(body))
	}))
	defer endpoint.Close()

	// Development allows the http and loopback of this example.
	g, _ := guard.New(guard.Policy{Development: true})
	s, _ := sender.New(sender.Config{Guard: g})
	defer s.Close()

	result := s.Send(context.Background(), sender.Request{
		URL:       endpoint.URL + "/hook",
		EventID:   "evt_2KWPBgLlAfxdpx2AI54pPJ85f4W",
		EventType: "invoice.paid",
		Attempt:   1,
		Body:      []byte(`{"type":"invoice.paid"}`),
		Secrets:   []signing.Secret{secret},
	})
	fmt.Println(result.Outcome, result.Status)
	// Output:
	// received invoice.paid {"type":"invoice.paid"}
	// delivered 200
}
