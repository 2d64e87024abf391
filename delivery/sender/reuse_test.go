package sender_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery/sender"
)

// warm sends one request that is answered, so that its connection is kept.
func warm(t *testing.T, s *sender.Sender, srv *server) {
	t.Helper()
	got := send(t, s, newRequest(srv.url()))
	want(t, got, sender.Delivered, 200)
	if got.Resent || got.Reused {
		t.Fatal("the first request was not on a fresh connection")
	}
}

// failingReuse answers the first request of the first connection and deals
// with the second as told. Later connections are served by later.
func failingReuse(fail, later func(*peer)) func(*peer) {
	return func(p *peer) {
		if p.number > 1 {
			later(p)
			return
		}
		p.read()
		p.write(ok200)
		fail(p)
	}
}

func TestFaultsOfReuse(t *testing.T) {
	t.Parallel()
	closeSilently := func(p *peer) { p.read() }
	for _, r := range []struct {
		name        string
		fail, later func(*peer)
		outcome     sender.Outcome
		status      int
		resent      bool
		requests    int
	}{
		{"F27_ClosedSilently", closeSilently, answering(ok200), sender.Delivered, 200, true, 3},
		{"F29_Reset", func(p *peer) { p.read(); p.reset() }, answering(ok200), sender.Delivered, 200, true, 3},
		{"F27_FreshOneAnswers500", closeSilently, answering(err500), sender.HTTPStatus, 500, true, 3},
		{"F27_OnceOnly", closeSilently, func(p *peer) { p.read() }, sender.ConnectionClosed, 0, true, 3},
		{"NotAfterAByteOfTheAnswer", func(p *peer) { p.read(); p.write("HTTP/1.1 200 OK\r\nX-A: b\r\n") }, answering(ok200), sender.ConnectionClosed, 0, false, 2},
		{"NotAfterGarbage", func(p *peer) { p.read(); p.write("garbage\r\n\r\n") }, answering(ok200), sender.ProtocolError, 0, false, 2},
		{"NotAfterAnInterimAnswer", func(p *peer) { p.read(); p.write("HTTP/1.1 103 X\r\n\r\n") }, answering(ok200), sender.ConnectionClosed, 0, false, 2},
		{"NotAfterATimeout", func(p *peer) { p.read(); p.r.ReadByte() }, answering(ok200), sender.Timeout, 0, false, 2},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			srv := listen(t, nil, failingReuse(r.fail, r.later))
			s := newSender(t, sender.Config{Timeout: impatient.Timeout})
			warm(t, s, srv)
			got := send(t, s, newRequest(srv.url()))
			want(t, got, r.outcome, r.status)
			is.Equal(got.Resent, r.resent)
			is.True(got.Reused)
			seen := srv.seen()
			is.Equal(len(seen), r.requests)
			last := seen[len(seen)-1]
			is.Equal(last.Header.Get("Webhook-Id"), seen[1].Header.Get("Webhook-Id"))
			is.Equal(last.Header.Get("Postlane-Attempt"), "1") // the same attempt
			is.Equal(last.body, seen[1].body)
		})
	}
}

// TestF27_TheSecondTryIsNotOnAnotherStaleConnection has two kept connections
// that both fail.
func TestF27_TheSecondTryIsNotOnAnotherStaleConnection(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	// Neither is answered before both have come, so that they cannot share.
	var both sync.WaitGroup
	both.Add(2)
	srv := listen(t, nil, func(p *peer) {
		if p.number > 2 {
			answering(ok200)(p)
			return
		}
		p.read()
		both.Done()
		both.Wait()
		p.write(ok200)
		p.read()
	})
	s := newSender(t, sender.Config{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { want(t, send(t, s, newRequest(srv.url())), sender.Delivered, 200) })
	}
	wg.Wait()
	got := send(t, s, newRequest(srv.url()))
	want(t, got, sender.Delivered, 200)
	is.True(got.Resent)
	is.Equal(srv.accepted.Load(), int64(3))
}

func TestF21_FreshConnectionIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	srv := listen(t, nil, func(p *peer) { p.read() })
	got := send(t, newSender(t, sender.Config{}), newRequest(srv.url()))
	want(t, got, sender.ConnectionClosed, 0)
	is.Equal(got.Resent, false)
	is.Equal(len(srv.seen()), 1)
}

func TestF28_IdempotencyKeyCannotMakeTheTransportReplay(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	srv := listen(t, nil, failingReuse(func(p *peer) { p.read() }, func(p *peer) { p.read() }))
	s := newSender(t, sender.Config{})
	warm(t, s, srv)
	r := newRequest(srv.url())
	r.Header = http.Header{"Idempotency-Key": {"k"}, "X-Idempotency-Key": {"k"}}
	got := send(t, s, r)
	want(t, got, sender.ConnectionClosed, 0)
	is.Equal(len(srv.seen()), 3) // the warm one, the reused one, the fresh one
	for _, req := range srv.seen() {
		is.Equal(req.Header.Get("Idempotency-Key"), "")
		is.Equal(req.Header.Get("X-Idempotency-Key"), "")
	}
}

// TestF27_HealthyReceiverThatClosesAfterEachAnswer meets the close at whatever
// moment it comes, many times.
func TestF27_HealthyReceiverThatClosesAfterEachAnswer(t *testing.T) {
	t.Parallel()
	srv := listen(t, nil, once(ok200))
	s := newSender(t, sender.Config{})
	for range 300 {
		if got := send(t, s, newRequest(srv.url())); !got.Delivered() {
			t.Fatalf("got %s: %v", got.Outcome, got.Err)
		}
	}
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	big := "HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + string(make([]byte, 20_000))
	for name, answer := range map[string]string{
		"small answer":        ok200,
		"answer over the cap": big,
		"failure":             err500,
		"chunked":             chunked("200 OK", "2\r\nok\r\n0\r\n\r\n"),
		"answer without body": "HTTP/1.1 204 No Content\r\n\r\n",
	} {
		srv := listen(t, nil, answering(answer))
		s := newSender(t, sender.Config{})
		for i := range 5 {
			got := send(t, s, newRequest(srv.url()))
			is.True(got.Answered)
			is.Equal(got.Reused, i > 0) // name
		}
		if n := srv.accepted.Load(); n != 1 {
			t.Errorf("%s: %d connections for 5 requests", name, n)
		}
	}
}
