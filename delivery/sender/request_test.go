package sender_test

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/delivery/signing"
)

func verify(r *request, keys ...signing.Key) error {
	return signing.Verify(keys, signing.HeadersOf(r.Header), r.body, time.Now(), 2*time.Second)
}

func TestRequestOnTheWire(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	srv := listen(t, nil, answering(ok200))
	key := signing.GeneratePrivateKey()
	old, err := signing.Generate(0)
	is.NoErr(err)
	r := newRequest(srv.url() + "?a=b&c")
	r.Asset, r.EventType = "zoë 100%\n", "invoice.paid"
	r.Attempt, r.StreamSeq, r.StreamPrev = 3, 42, 40
	r.Secrets = append(r.Secrets, old)
	r.Keys = []signing.PrivateKey{key}
	r.Header = http.Header{"X-Team": {"blue", "green"}, "authorization": {"Bearer abc"}}
	want(t, send(t, newSender(t, sender.Config{UserAgent: "test/1"}), r), sender.Delivered, 200)

	got := srv.seen()[0]
	is.Equal(got.Method, "POST")
	is.Equal(got.RequestURI, "/hook?a=b&c")
	is.Equal(got.ContentLength, int64(len(r.Body)))
	is.Equal(got.TransferEncoding, []string(nil)) // a length, not chunks
	is.Equal(string(got.body), string(r.Body))
	one := func(name string) string {
		t.Helper()
		is.Equal(len(got.Header.Values(name)), 1)
		return got.Header.Get(name)
	}
	is.Equal(one("Content-Type"), "application/json")
	is.Equal(one("User-Agent"), "test/1")
	is.Equal(one("webhook-id"), r.EventID)
	is.Equal(one("postlane-event-type"), "invoice.paid")
	is.Equal(one("postlane-attempt"), "3")
	is.Equal(one("postlane-asset"), "zo%C3%AB%20100%25%0A")
	is.Equal(one("postlane-stream-seq"), "42")
	is.Equal(one("postlane-stream-prev"), "40")
	is.Equal(one("Authorization"), "Bearer abc")
	is.Equal(got.Header.Values("X-Team"), []string{"blue", "green"})
	is.Equal(strings.Count(one("webhook-signature"), " "), 2) // three signatures
	is.NoErr(verify(got, testSecret))
	is.NoErr(verify(got, old))
	is.NoErr(verify(got, key.Public()))
}

func TestEmptyPartsLeaveTheirHeaderOut(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	srv := listen(t, nil, answering(ok200))
	s := newSender(t, sender.Config{})
	r := newRequest(srv.url())
	r.EventType, r.Body = "", nil
	want(t, send(t, s, r), sender.Delivered, 200)
	first := newRequest(srv.url())
	first.StreamSeq = 7
	want(t, send(t, s, first), sender.Delivered, 200)

	seen := srv.seen()
	for _, name := range []string{"postlane-asset", "postlane-event-type", "postlane-stream-seq", "postlane-stream-prev"} {
		is.Equal(len(seen[0].Header.Values(name)), 0)
	}
	is.Equal(seen[0].Header.Get("Content-Length"), "0")
	is.NoErr(verify(seen[0], testSecret))
	is.Equal(seen[1].Header.Get("postlane-stream-prev"), "0") // the first of its stream says so
}

func TestBC38_TheBytesSignedAreTheBytesSent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	srv := listen(t, nil, answering(ok200))
	s := newSender(t, sender.Config{})
	for _, body := range []string{
		`{"b":1,"a":2,"b":3,  "n":12345678901234567890,"e":1E2,"z":-0}`,
		"{\n\t\"name\": \"Zoë – 日本語 🚀\"\n}\n",
		`{"html":"<a href=\"/?a=1&b=2\">R&D</a>","nested":[[1,[2,[]]],{}]}`,
		"\ufeff{}", "a\x00b", "\xff\xfe", "", " ",
		strings.Repeat("x", 1<<20),
	} {
		r := newRequest(srv.url())
		r.Body = []byte(body)
		want(t, send(t, s, r), sender.Delivered, 200)
		seen := srv.seen()
		got := seen[len(seen)-1]
		is.Equal(string(got.body), body)
		is.Equal(got.Header.Get("Content-Length"), strconv.Itoa(len(body)))
		is.NoErr(verify(got, testSecret))
	}
}

func TestBC39_F77_F78_RetriesKeepTheEventAndRenewTheSignature(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	answers := []string{err500, err500, ok200, ok200}
	srv := listen(t, nil, func(p *peer) {
		for p.read() != nil {
			p.write(answers[len(p.server.seen())-1])
		}
	})
	clock := time.Now()
	s := newSender(t, sender.Config{})
	sender.SetClock(s, func() time.Time { return clock })
	for attempt := 1; attempt <= 4; attempt++ {
		r := newRequest(srv.url())
		r.Attempt = attempt
		send(t, s, r)
		got := srv.seen()[attempt-1]
		is.Equal(got.Header.Get("webhook-id"), r.EventID)
		is.Equal(string(got.body), string(r.Body))
		is.Equal(got.Header.Get("postlane-attempt"), strconv.Itoa(attempt))
		is.Equal(got.Header.Get("webhook-timestamp"), strconv.FormatInt(clock.Unix(), 10))
		is.NoErr(signing.Verify([]signing.Key{testSecret}, signing.HeadersOf(got.Header), got.body, clock, 2*time.Second))
		clock = clock.Add(2 * time.Hour)
	}
}

func TestBC43_ReservedHeadersReplaceNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	srv := listen(t, nil, answering(ok200))
	names := []string{
		"webhook-id", "Webhook-ID", "WEBHOOK-TIMESTAMP", "webhook-signature", "Webhook-Signature", "webhook-anything",
		"content-type", "Content-Type", "CONTENT-LENGTH", "host", "Host", "transfer-encoding", "Trailer", "connection",
		"Upgrade", "Expect", "accept-encoding", "Idempotency-Key", "user-agent", "postlane-attempt", "Postlane-Asset",
		"POSTLANE-STREAM-SEQ", "postlane-anything", "TE", "keep-alive", "proxy-authorization", "content-encoding",
	}
	r := newRequest(srv.url())
	r.Asset, r.StreamSeq = "a", 1
	r.Header = http.Header{}
	for _, name := range names {
		is.True(sender.ReservedHeader(name))
		err := sender.CheckHeader(name, "evil")
		is.True(errors.Is(err, sender.ErrHeader))       // the API refuses it
		is.True(strings.Contains(err.Error(), name))    // by name
		is.True(!strings.Contains(err.Error(), "evil")) // without the value
		r.Header[name] = []string{"evil"}               // planted, past the API
	}
	want(t, send(t, newSender(t, sender.Config{}), r), sender.Delivered, 200)
	got := srv.seen()[0]
	for name, values := range got.Header {
		is.Equal(len(values), 1) // the product's own value, exactly once
		is.True(values[0] != "evil")
		is.True(name != "Accept-Encoding" && name != "Expect" && name != "Connection")
	}
	is.Equal(got.Host, "127.0.0.1:"+srv.port())
	is.Equal(got.Header.Get("Content-Type"), "application/json")
	is.NoErr(verify(got, testSecret))
}

func TestF11_HeadersThatCannotBeSent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	canary := listen(t, nil, func(*peer) {})
	s := newSender(t, sender.Config{})
	for _, h := range [][2]string{
		{"X-A", "a\r\nX-B: c"}, {"X-A", "a\nb"}, {"X-A", "a\x00b"}, {"X A", "b"}, {"", "b"}, {"X:A", "b"}, {"X-Ä", "b"}, {"X-A", "\x7f"},
	} {
		is.True(errors.Is(sender.CheckHeader(h[0], h[1]), sender.ErrHeader))
		r := newRequest(canary.url())
		r.Header = http.Header{h[0]: {h[1]}}
		want(t, send(t, s, r), sender.InvalidRequest, 0)
	}
	is.Equal(canary.accepted.Load(), int64(0))
	for _, h := range [][2]string{{"X-A", ""}, {"Authorization", "Bearer x"}, {"X-A", "tab\tin"}, {"x_under", "v"}} {
		is.NoErr(sender.CheckHeader(h[0], h[1]))
	}
}

func TestRequestsThatCannotBeBuilt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	canary := listen(t, nil, func(*peer) {})
	s := newSender(t, sender.Config{})
	for name, spoil := range map[string]func(*sender.Request){
		"no secret":        func(r *sender.Request) { r.Secrets = nil },
		"zero secret":      func(r *sender.Request) { r.Secrets = append(r.Secrets, signing.Secret{}) },
		"zero key":         func(r *sender.Request) { r.Keys = []signing.PrivateKey{{}} },
		"no id":            func(r *sender.Request) { r.EventID = "" },
		"full stop in id":  func(r *sender.Request) { r.EventID = "evt.1" },
		"line break in id": func(r *sender.Request) { r.EventID = "evt\r\nX: y" },
		"id not ASCII":     func(r *sender.Request) { r.EventID = "evt_é" },
		"attempt 0":        func(r *sender.Request) { r.Attempt = 0 },
		"negative seq":     func(r *sender.Request) { r.StreamSeq = -1 },
		"prev without seq": func(r *sender.Request) { r.StreamPrev = 1 },
		"bad content type": func(r *sender.Request) { r.ContentType = "a\r\nb" },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequest(canary.url())
			spoil(&r)
			got := send(t, s, r)
			want(t, got, sender.InvalidRequest, 0)
		})
	}
	is.Equal(canary.accepted.Load(), int64(0))
}

func FuzzEncodeText(f *testing.F) {
	for _, s := range []string{"", "plain", "a b", "100%", "zoë", "\x00\xff", "%41", "日本語"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		encoded := sender.EncodeText(text)
		for i := range len(encoded) {
			if encoded[i] <= ' ' || encoded[i] > '~' {
				t.Fatalf("%q became %q", text, encoded)
			}
		}
		back, err := url.PathUnescape(encoded)
		if err != nil || back != text {
			t.Fatalf("%q became %q, which reads %q, %v", text, encoded, back, err)
		}
	})
}
