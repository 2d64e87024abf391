package api_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/api"
)

// theirs marks what is another tenant's and must be in no answer to acme.
const theirs = "theirs-alone"

// fuzzed is an API in production's policy, with things of acme and of another tenant. What
// it says is thrown away, and its log too.
func fuzzed(f *testing.F) (b *bundle, sub string) {
	f.Helper()
	b = setupPolicy(f, guard.Policy{Development: true}, func(c *api.Config) { c.Logger = slog.New(slog.DiscardHandler) })
	sub = b.subscribe(nil)
	b.want(201, b.other, "POST", "/v1/subscriptions", map[string]any{"url": endpoint, "description": theirs})
	b.enqueue("a", "b", "c", "")
	b.settle(delivery.Failed, b.claim(2)...)
	return b, sub
}

// during makes the bundle fail the run of a fuzz target in place of the target.
func (b *bundle) during(t *testing.T) {
	t.Helper()
	b.t, b.is = t, is.New(t)
}

// sane fails the test unless an answer is one that any request of acme may get.
func (b *bundle) sane(got answer) {
	b.t.Helper()
	if got.status < 200 || got.status >= 500 || got.status >= 300 && got.status < 400 {
		b.t.Fatalf("answered %d: %s", got.status, got.body)
	}
	if bytes.Contains(got.body, []byte(theirs)) {
		b.t.Fatalf("tells what is another tenant's: %s", got.body)
	}
	if got.status == 204 {
		return
	}
	if !json.Valid(got.body) || !utf8.Valid(got.body) {
		b.t.Fatalf("not JSON: %q", got.body)
	}
	if got.status >= 400 {
		v := got.object(b)
		if v["code"] == "" || v["status"] != float64(got.status) || got.header.Get("Content-Type") != "application/problem+json" {
			b.t.Fatalf("not a problem: %s", got.body)
		}
	}
}

// FuzzBody holds that whatever body is sent, the answer is a good one or a problem that
// blames the request, and nothing of another tenant's.
func FuzzBody(f *testing.F) {
	b, sub := fuzzed(f)
	routes := []struct{ method, path string }{
		{"POST", "/v1/events"},
		{"POST", "/v1/subscriptions"},
		{"PATCH", sub},
		{"POST", sub + "/pause"},
		{"POST", sub + "/rotate-secret"},
		{"POST", sub + "/deliveries/retry"},
		{"POST", sub + "/deliveries/dlv_1/discard"},
		{"POST", "/v1/keys"},
	}
	for i, bodies := range [][]string{
		{`{"events":[{"type":"a.b","payload":{"a":1}}]}`, `{"events":[{"type":"a.b","payload_base64":"AA=="}]}`, `{"tenant":"other","events":[{"type":"a","payload":null}]}`, `{"events":[{"type":"a","asset":"\u0000","payload":1e999}]}`},
		{`{"url":"https://example.com/"}`, `{"url":"http://127.0.0.1/","headers":{"X-A":"b\n"}}`, `{"url":"https://example.com/","url":"https://a.example/"}`, `{"URL":""}`},
		{`{"description":null}`, `{"event_types":["a.*"],"v1a":true}`, `{"headers":{"Host":"x"}}`, `{"max_attempts":1e2}`, `{"headers":{"":""}}`},
		{`{"reason":"a"}`, `null`, ``, `[]`},
		{`{"overlap_seconds":0}`, `{"overlap_seconds":-1}`},
		{`{"dry_run":true}`, `{"asset":"\u0000"}`, `{"asset":null,"reason":"x"}`, `{"since":"0001-01-01T00:00:00Z","until":"9999-12-31T23:59:59Z"}`, `{"cursor":"x"}`},
		{`{"reason":"\ud800"}`, `{"reason":"\u0000"}`},
		{`{"name":"x","scope":"read"}`},
	} {
		for _, body := range bodies {
			f.Add(byte(i), body)
		}
	}
	f.Fuzz(func(t *testing.T, route byte, body string) {
		b.during(t)
		r := routes[int(route)%len(routes)]
		b.sane(b.do(b.acme, r.method, r.path, body))
	})
}

// FuzzQuery holds the same of what stands in the address of a list, and that a page which
// was given goes on where its cursor says, with the same filter, and shows what fits it.
func FuzzQuery(f *testing.F) {
	b, sub := fuzzed(f)
	lists := []string{sub + "/deliveries", sub + "/streams", "/v1/subscriptions", "/v1/audit", "/v1/keys"}
	for i := range lists {
		for _, query := range []string{
			"", "limit=1", "limit=501", "cursor=x", "cursor=%00", "asset=", "asset=a&limit=1", "state=dead,pending", "state=dead&state=x", "tenant=other",
			"since=2026-01-01T00:00:00Z", "until=0000-01-01T00:00:00Z", "since=9999-12-31T23:59:59.999999999Z", "order=oldest&limit=1", "asset=%00", "event_type=%ff", "%zz", "a=;",
		} {
			f.Add(byte(i), query)
		}
	}
	f.Fuzz(func(t *testing.T, list byte, query string) {
		b.during(t)
		path := lists[int(list)%len(lists)]
		if strings.IndexFunc(query, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }) >= 0 {
			query = url.QueryEscape(query) // as no client could send it
		}
		at := path + "?" + query
		if _, err := url.ParseRequestURI(at); err != nil {
			return
		}
		got := b.do(b.acme, "GET", at, nil)
		b.sane(got)
		if got.status != 200 {
			return
		}
		v := got.object(b)
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		for _, item := range v["data"].([]any) {
			asset, given := item.(map[string]any)["asset"]
			if want, filtered := values["asset"]; filtered && given && path == lists[0] && (want[0] == "") != (asset == nil) {
				t.Fatalf("%s shows %v", at, item)
			}
		}
		if next, more := v["next_cursor"].(string); more {
			values.Set("cursor", next)
			b.want(200, b.acme, "GET", path+"?"+values.Encode(), nil)
		}
	})
}

// FuzzAnswer holds that whatever an endpoint answers is recorded, and told as text: valid
// UTF-8 without control characters.
func FuzzAnswer(f *testing.F) {
	b, sub := fuzzed(f)
	b.settle(delivery.Succeeded, b.claim(1000)...)
	for _, s := range []string{"ok", "\x00", "\xff\xfe", "a\x1b[2Jb", "\u202egnp.exe", "</script>", "\r\n\t", strings.Repeat("é", 3000)} {
		f.Add([]byte(s), []byte(s), s, uint16(500), uint16(7))
	}
	f.Fuzz(func(t *testing.T, body, headers []byte, problem string, status, outcome uint16) {
		b.during(t)
		id := b.enqueue("an answer")[0].Seq
		claims := b.claim(1)
		outcomes := []string{"http_status", "delivered", "stalled", "", "tls_failure", "\x00\xff"}
		settled, err := b.store.Settle(b.ctx, []delivery.Result{{Claim: &claims[0], Verdict: delivery.Succeeded, Attempt: delivery.AttemptEvidence{
			Started: time.Now(), Outcome: outcomes[int(outcome)%len(outcomes)], Status: int(status), Answered: true, Answer: body, Headers: headers, Error: problem,
		}}})
		b.is.NoErr(err)
		b.is.Equal(settled[0].State, delivery.SettledDelivered)
		got := b.want(200, b.acme, "GET", sub+"/deliveries/"+delivery.ID(id).String(), nil)
		b.sane(got)
		attempt := got.object(b)["attempts_made"].([]any)[0].(map[string]any)
		for name, value := range attempt {
			text, _ := value.(string)
			if strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) >= 0 {
				t.Fatalf("%s is %q", name, text)
			}
		}
		odd := func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
		if text, _ := attempt["answer"].(string); utf8.Valid(body) && bytes.IndexFunc(body, odd) < 0 && text != string(body) {
			t.Fatalf("%q is told as %q", body, text)
		}
	})
}
