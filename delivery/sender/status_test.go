package sender_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery/sender"
)

func TestBC34_Exactly2xxIsDelivered(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSender(t, sender.Config{})
	status := 0
	srv := listen(t, nil, func(p *peer) {
		for p.read() != nil {
			p.write(fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n", status))
		}
	})
	// F37 to F46b: 2xx is success, all else is not, 410 says "no more".
	for status = 200; status <= 599; status++ {
		got := send(t, s, newRequest(srv.url()))
		outcome := sender.HTTPStatus
		if status < 300 {
			outcome = sender.Delivered
		}
		want(t, got, outcome, status)
		is.Equal(got.Delivered(), status < 300)
		is.Equal(got.Gone(), status == 410)
		is.True(!got.OurFault())
		is.Equal(got.Resent, false)
		if status >= 300 {
			is.True(strings.Contains(got.Text(), fmt.Sprint(status)))
			is.True(!strings.Contains(got.Text(), "X")) // the reason phrase is not the peer's
		}
	}
}

func TestBC37_F38_RedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	canary := listen(t, nil, func(*peer) {})
	for _, status := range []int{300, 301, 302, 303, 307, 308} {
		for _, location := range []string{
			canary.url(),
			"/relative",
			"https://example.com/hook/",
			// F47: locations that url.Parse refuses
			"http://[::1", "://bad", "%zz", "http://a b/",
			"file:///etc/passwd",
			"", // F48: none
		} {
			t.Run(fmt.Sprintf("F47_%d_%q", status, location), func(t *testing.T) {
				t.Parallel()
				is := is.New(t)
				header := ""
				if location != "" {
					header = "Location: " + location + "\r\n"
				}
				srv := listen(t, nil, once(fmt.Sprintf("HTTP/1.1 %d X\r\n%sContent-Length: 0\r\n\r\n", status, header)))
				got := send(t, newSender(t, sender.Config{}), newRequest(srv.url()))
				want(t, got, sender.HTTPStatus, status)
				is.Equal(got.Location, location)
				is.Equal(len(srv.seen()), 1)
				is.Equal(canary.accepted.Load(), int64(0))
			})
		}
	}
}

func TestBC33_EveryFailureHasItsClassAndHeals(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	dead := closedPort(t)
	for _, r := range []struct {
		name    string
		failing func(t *testing.T) (url string)
		outcome sender.Outcome
	}{
		{"NameNotFound", func(*testing.T) string { return "https://nowhere.invalid/" }, sender.DNSNotFound},
		{"Refused", func(*testing.T) string { return "http://127.0.0.1:" + dead + "/" }, sender.ConnectionRefused},
		{"HandshakeFailure", func(t *testing.T) string {
			return "https://127.0.0.1:" + listen(t, nil, func(p *peer) { p.write("nonsense, and more of it") }).port() + "/"
		}, sender.TLSHandshake},
		{"ResetBeforeTheResponse", func(t *testing.T) string {
			return listen(t, nil, func(p *peer) { p.read(); p.reset() }).url()
		}, sender.ConnectionReset},
		{"ClosedInMidResponse", func(t *testing.T) string {
			return listen(t, nil, func(p *peer) { p.read(); p.write("HTTP/1.1 200 OK\r\nX-A: b\r\n") }).url()
		}, sender.ConnectionClosed},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := newSender(t, sender.Config{RootCAs: ca.pool, Resolver: nowhere(t)})
			got := send(t, s, newRequest(r.failing(t)))
			want(t, got, r.outcome, 0)
			is.True(got.Err != nil)
			is.True(!got.Gone()) // nothing here is final
			// The receiver heals: the same event, the next attempt.
			healed := listen(t, nil, answering(ok200))
			next := newRequest(healed.url())
			next.Attempt = 2
			want(t, send(t, s, next), sender.Delivered, 200)
			is.Equal(healed.seen()[0].Header.Get("Postlane-Attempt"), "2")
		})
	}
}

func TestBC32_RetryAfterOfAnAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSender(t, sender.Config{})
	for _, r := range []struct {
		status int
		header string
		min    time.Duration
		max    time.Duration
	}{
		{429, "Retry-After: 120", 2 * time.Minute, 2 * time.Minute},
		{503, "Retry-After: 120", 2 * time.Minute, 2 * time.Minute},
		{429, "Retry-After: " + time.Now().Add(2*time.Minute).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"), 110 * time.Second, 2 * time.Minute},
		{429, "Retry-After: Mon, 01 Jan 2024 00:00:00 GMT", 0, 0},
		{429, "Retry-After: -5", 0, 0},
		{429, "Retry-After: 0", 0, 0},
		{429, "Retry-After: 999999999999", sender.MaxRetryAfter, sender.MaxRetryAfter},
		{429, "Retry-After: abc", 0, 0},
		{429, "Retry-After: abc\r\nRetry-After: 7", 7 * time.Second, 7 * time.Second},
		{500, "Retry-After: 120", 0, 0}, // only 429 and 503 mean it for us
		{200, "Retry-After: 120", 0, 0},
	} {
		srv := listen(t, nil, once(fmt.Sprintf("HTTP/1.1 %d X\r\n%s\r\nContent-Length: 0\r\n\r\n", r.status, r.header)))
		got := send(t, s, newRequest(srv.url()))
		is.Equal(got.Status, r.status)
		if got.RetryAfter < r.min || got.RetryAfter > r.max {
			t.Errorf("%d %s: got %v, want %v to %v", r.status, r.header, got.RetryAfter, r.min, r.max)
		}
	}
}

//nolint:paralleltest // it looks at the memory of the whole process
func TestBC40_BodiesThatDoNotEnd(t *testing.T) {
	const header = "HTTP/1.1 200 OK\r\n"
	piece := strings.Repeat("x", 64<<10)
	flood := func(p *peer) {
		for p.write(piece) == nil {
		}
	}
	for _, r := range []struct {
		name    string
		serve   func(*peer)
		outcome sender.Outcome // (a) to (c) are delivered: their status says so
		status  int
		stored  int
	}{
		{"a_Endless", func(p *peer) { p.read(); p.write(header + "\r\n"); flood(p) }, sender.Delivered, 200, 4096},
		{"b_Declares1GB", func(p *peer) { p.read(); p.write(header + "Content-Length: 1000000000\r\n\r\n"); flood(p) }, sender.Delivered, 200, 4096},
		{"c_Drip", func(p *peer) {
			p.read()
			p.write(header + "\r\n")
			tick := time.NewTicker(500 * time.Millisecond)
			defer tick.Stop()
			for range tick.C {
				if p.write("x") != nil {
					return
				}
			}
		}, sender.Delivered, 200, 4},
		{"d_NoHeadersEver", func(p *peer) { p.read(); p.r.ReadByte() }, sender.Timeout, 0, 0},
	} {
		t.Run(r.name, func(t *testing.T) {
			is := is.New(t)
			srv := listen(t, nil, r.serve)
			s := newSender(t, sender.Config{Timeout: 2 * time.Second})
			before := allocated()
			got := send(t, s, newRequest(srv.url()))
			is.True(allocated()-before < 10<<20)
			want(t, got, r.outcome, r.status)
			is.True(got.Duration < 3*time.Second)
			is.True(len(got.Body) <= r.stored)
			is.Equal(got.BodyTruncated, r.outcome == sender.Delivered)
		})
	}
}

func TestBC41_BytesThatTextColumnsRefuse(t *testing.T) {
	t.Parallel()
	s := newSender(t, sender.Config{})
	for _, status := range []int{200, 500} {
		for _, body := range []string{"a\x00b", "caf\xe9", "plain"} {
			is := is.New(t)
			srv := listen(t, nil, once(fmt.Sprintf("HTTP/1.1 %d X\r\nX-Odd: \xff\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)))
			got := send(t, s, newRequest(srv.url()))
			is.Equal(got.Status, status)
			is.Equal(got.Delivered(), status == 200)    // the state follows the status
			is.Equal(string(got.Body), body)            // raw: for a bytea column
			is.Equal(got.Header.Get("X-Odd"), "\uFFFD") // fit for a text column
			is.Equal(len(srv.seen()), 1)                // no extra request
		}
	}
}

func TestF79_NoTextHoldsTheURL(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const secret = "token=hush-hush"
	for _, url := range []string{
		"http://127.0.0.1:" + closedPort(t) + "/?" + secret,
		"https://nowhere.invalid/?" + secret,
		"https://127.0.0.1:1/?" + secret,
		"gopher://example.com/?" + secret,
		"http://exa mple.com/?" + secret,
		"http://%zz/?" + secret,
	} {
		got := send(t, newSender(t, sender.Config{Resolver: nowhere(t)}), newRequest(url))
		is.True(!got.Delivered())
		is.True(!strings.Contains(got.Text(), "hush"))
		is.True(!strings.Contains(got.Text(), "127.0.0.1"))
		is.True(!strings.Contains(got.Err.Error(), "hush"))
	}
}
