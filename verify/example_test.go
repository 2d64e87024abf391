package verify_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/postlane-go/postlane/delivery/signing"
	"github.com/postlane-go/postlane/verify"
)

// An endpoint: what reaches the handler is signed, fresh, and not handled yet.
func Example() {
	verifier, err := verify.New(verify.Config{
		Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, // shown when the subscription was made
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /hooks", verifier.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, _ := verify.From(r.Context())
		if d.Order == verify.Late {
			return // something newer was handled: this one has nothing to add
		}
		fmt.Printf("%s of %s: %s\n", d.EventType, d.Asset, d.Body)
	})))

	send := func(body string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, signed("/hooks", "evt_1", body))
		fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Body)))
	}
	send(`{"total":1200}`)
	send(`{"total":1200}`) // again: answered, not handled
	send(`{"total":9999} `)
	// Output:
	// invoice.paid of in_1: {"total":1200}
	// 200
	// 200
	// 401 signing: no signature in webhook-signature matches
}

// signed is a request as it is sent for {"total":1200}, whatever its body.
func signed(path, id, body string) *http.Request {
	secret, _ := signing.Parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	now := time.Now().Unix()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("webhook-id", id)
	r.Header.Set("webhook-timestamp", strconv.FormatInt(now, 10))
	r.Header.Set("webhook-signature", string(signing.Sign(nil, id, now, []byte(`{"total":1200}`), secret)))
	r.Header.Set("postlane-event-type", "invoice.paid")
	r.Header.Set("postlane-asset", "in_1")
	return r
}
