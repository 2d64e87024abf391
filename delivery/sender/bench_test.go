package sender_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/postlane-go/postlane/delivery/sender"
)

// BenchmarkSend sends to a server in this process: its allocations count too.
// BenchmarkRoundTrip is the same request without anything of this package.
func BenchmarkSend(b *testing.B) {
	srv := receiver(b)
	s := newSender(b, sender.Config{})
	r := newRequest(srv.URL + "/hook")
	b.ReportAllocs()
	for b.Loop() {
		if got := s.Send(context.Background(), r); !got.Delivered() {
			b.Fatal(got.Outcome, got.Err)
		}
	}
}

func BenchmarkSendParallel(b *testing.B) {
	srv := receiver(b)
	s := newSender(b, sender.Config{})
	r := newRequest(srv.URL + "/hook")
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if got := s.Send(context.Background(), r); !got.Delivered() {
				b.Error(got.Outcome, got.Err)
				return
			}
		}
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	srv := receiver(b)
	transport := &http.Transport{MaxIdleConnsPerHost: 128}
	defer transport.CloseIdleConnections()
	r := newRequest("")
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequest(http.MethodPost, srv.URL+"/hook", http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Webhook-Id", r.EventID)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

func receiver(b *testing.B) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "ok")
	}))
	b.Cleanup(srv.Close)
	return srv
}
