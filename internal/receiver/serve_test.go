package receiver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
)

// server is a testBundle behind a real listener.
type server struct {
	*testBundle
	url    string
	client *http.Client
	stop   func() error // ends Serve and returns what it returned
}

func setupServer(t *testing.T, config Config) *server {
	t.Helper()
	b := setup(t, config)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	b.is.NoErr(err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, ln) }()
	client := &http.Client{Transport: &http.Transport{}}
	s := &server{b, "http://" + ln.Addr().String(), client, func() error {
		cancel()
		return <-served
	}}
	t.Cleanup(func() {
		cancel()
		client.CloseIdleConnections()
	})
	return s
}

// post returns the status, or the error that took its place.
func (s *server) post(ctx context.Context, h hook) (int, error) {
	req := h.request()
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+req.URL.Path, req.Body)
	s.is.NoErr(err)
	out.Header = req.Header
	resp, err := s.client.Do(out)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func TestServe(t *testing.T) {
	t.Parallel()
	s := setupServer(t, Config{Secrets: map[string][]string{AnyPath: {secretA}}})
	for i := range int64(100) { // over one connection, so each is closed before the next begins
		status, err := s.post(t.Context(), hook{seq: i + 1, prev: i, secret: secretA, body: strings.Repeat("x", int(i)*100)})
		s.is.NoErr(err)
		s.is.Equal(status, 200)
	}
	s.is.NoErr(s.stop())
	v := s.Verdict()
	s.is.True(v.OK())
	s.is.Equal(v.Accepted, int64(100))
	_, err := s.post(t.Context(), hook{})
	s.is.True(err != nil) // the listener is closed
}

// An endpoint that was down for a while keeps its verdict.
func TestServeAgain(t *testing.T) {
	t.Parallel()
	s := setupServer(t, Config{})
	_, err := s.post(t.Context(), hook{seq: 1})
	s.is.NoErr(err)
	s.is.NoErr(s.stop())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	s.is.NoErr(err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	s.url = "http://" + ln.Addr().String()
	_, err = s.post(t.Context(), hook{seq: 2, prev: 1})
	s.is.NoErr(err)
	cancel()
	s.is.NoErr(<-served)
	s.is.Equal(s.Verdict().Accepted, int64(2))
	s.is.True(s.Verdict().OK())
}

func TestServeStopsHeldRequests(t *testing.T) {
	t.Parallel()
	s := setupServer(t, Config{Behaviour: Behaviour{Hold: make(chan struct{})}, Grace: time.Minute})
	arrivals, stop := s.Arrivals(1)
	defer stop()
	type answer struct {
		status int
		err    error
	}
	answered := make(chan answer, 1)
	go func() {
		status, err := s.post(t.Context(), hook{})
		answered <- answer{status, err}
	}()
	<-arrivals
	s.is.NoErr(s.stop()) // long before the grace is over
	s.is.Equal(<-answered, answer{503, nil})
	v := s.Verdict()
	s.is.Equal(v.Abandoned, int64(1))
	s.is.Equal(v.Accepted, int64(0))
	s.is.Equal(v.Open, int64(0))
}

// Grace bounds what a handler that does not return can delay.
func TestServeGrace(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	s := setupServer(t, Config{Grace: time.Millisecond, Observe: func(Arrival, []byte) {
		close(entered)
		<-release
	}})
	failed := make(chan error, 1)
	go func() {
		_, err := s.post(t.Context(), hook{})
		failed <- err
	}()
	<-entered
	s.is.NoErr(s.stop())
	s.is.True(<-failed != nil) // its connection is closed
	close(release)
	s.is.NoErr(s.WaitForRequests(t.Context(), 1))
}

func TestServeNoticesAHangUp(t *testing.T) {
	t.Parallel()
	s := setupServer(t, Config{Behaviour: Behaviour{Hold: make(chan struct{})}})
	arrivals, stop := s.Arrivals(1)
	defer stop()
	ctx, hangUp := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := s.post(ctx, hook{seq: 1, asset: "a"})
		failed <- err
	}()
	<-arrivals
	hangUp()
	s.is.True(errors.Is(<-failed, context.Canceled))
	s.behave(AnyPath, Behaviour{})
	status, err := s.post(t.Context(), hook{seq: 1, asset: "a", attempt: 2}) // at once
	s.is.NoErr(err)
	s.is.Equal(status, 200)
	s.is.NoErr(s.WaitForRequests(t.Context(), 2))
	v := s.Verdict()
	s.is.Equal(v.Abandoned, int64(1))
	s.is.Equal(v.Overlaps, int64(0)) // the sender closed the one before it opened the other
	s.is.True(v.OK())
	s.is.NoErr(s.stop())
}

func TestDrop(t *testing.T) {
	t.Parallel()
	s := setupServer(t, Config{Behaviour: Behaviour{FailFirst: 1, FailStatus: Drop}})
	_, err := s.post(t.Context(), hook{})
	s.is.True(errors.Is(err, io.EOF))
	status, err := s.post(t.Context(), hook{attempt: 2})
	s.is.NoErr(err)
	s.is.Equal(status, 200)
	v := s.Verdict()
	s.is.Equal(v.Duplicates, int64(1))
	s.is.Equal(v.Redelivered, int64(0))
	s.is.True(v.OK())
	s.is.NoErr(s.stop())
}

// The time-outs are for the network: a delay longer than all of them is kept.
func TestDelayLongerThanTheTimeouts(t *testing.T) {
	t.Parallel()
	s := setupServer(t, Config{
		Behaviour:   Behaviour{Delay: 200 * time.Millisecond},
		ReadTimeout: 50 * time.Millisecond, WriteTimeout: 50 * time.Millisecond,
	})
	status, err := s.post(t.Context(), hook{})
	s.is.NoErr(err)
	s.is.Equal(status, 200)
	s.is.Equal(s.Verdict().Abandoned, int64(0))
	s.is.NoErr(s.stop())
}

func TestServeLimits(t *testing.T) {
	t.Parallel()
	s := setupServer(t, Config{MaxBody: 1000, MaxHeader: 2000, ReadHeaderTimeout: 50 * time.Millisecond, ReadTimeout: 100 * time.Millisecond})
	status, err := s.post(t.Context(), hook{body: strings.Repeat("x", 1001)})
	s.is.NoErr(err)
	s.is.Equal(status, 413)
	status, err = s.post(t.Context(), hook{change: func(h http.Header) { h.Set("X-Long", strings.Repeat("x", 10_000)) }})
	s.is.NoErr(err)
	s.is.Equal(status, 431)
	s.is.Equal(s.Verdict().Unread, int64(1))

	for name, text := range map[string]string{
		"header that never ends": "POST /hook HTTP/1.1\r\nHost: x\r\n",
		"body that never ends": fmt.Sprintf("POST /hook HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n"+
			"Webhook-Id: m\r\nWebhook-Timestamp: %d\r\n\r\n{", noon.Unix()),
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		s.is.NoErr(err)
		_, err = io.WriteString(conn, text)
		s.is.NoErr(err)
		_, err = io.Copy(io.Discard, bufio.NewReader(conn)) // until the receiver closes it
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s.is.NoErr(conn.Close())
	}
	s.is.NoErr(s.WaitForRequests(t.Context(), 2))
	s.is.Equal(s.Verdict().Unread, int64(2))
	s.is.NoErr(s.stop())
}

func TestServeOnAClosedListener(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	b := setup(t, Config{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	is.NoErr(ln.Close())
	is.True(errors.Is(b.Serve(t.Context(), ln), net.ErrClosed))
}
