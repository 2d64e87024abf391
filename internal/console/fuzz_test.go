package console

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/matryer/is"
	"golang.org/x/net/html"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/keys"
)

// theirs marks what is another tenant's and must be on no page of acme's.
const theirs = "theirs-alone"

// fuzzed is a console with things of acme and of another tenant, and a visitor of acme.
func fuzzed(f *testing.F) (v *visitor, sub *delivery.Subscription, ids []delivery.ID) {
	f.Helper()
	s := setup(f, func(c *Config) { c.Logger = slog.New(slog.DiscardHandler) })
	sub = s.subscribe("acme", "/a", dies)
	s.subscribe("other", "/"+theirs, dies)
	ids = s.enqueue("acme", "thing.changed", "a", "b", "")
	s.enqueue("other", "thing."+theirs, theirs)
	s.settle(answered(500, "<b>no</b>"))
	for tenant, name := range map[string]string{"acme": "thing.changed", "other": "thing." + theirs} {
		_, err := s.store.PutEventType(s.ctx, delivery.EventType{Tenant: tenant, Name: name, Description: tenant, Schema: `{"type":"object"}`, Validate: true})
		s.is.NoErr(err)
	}
	ids = append(ids, s.enqueue("acme", "thing.changed", "a", "c")...)
	return s.signedIn(s.key("acme", keys.Write)), sub, ids
}

// during makes the visitor fail the run of a fuzz target in place of the target.
func (v *visitor) during(t *testing.T) {
	t.Helper()
	v.t, v.is = t, is.New(t)
}

// parts are the names of the elements and attributes of a page, and the schemes of its links.
func parts(page string) map[string]bool {
	names := map[string]bool{}
	z := html.NewTokenizer(strings.NewReader(page))
	for z.Next() != html.ErrorToken {
		token := z.Token()
		switch token.Type {
		case html.StartTagToken, html.SelfClosingTagToken, html.EndTagToken:
			names["<"+token.Data] = true
		case html.CommentToken:
			names["<!--"] = true
		}
		for _, a := range token.Attr {
			names["<"+token.Data+" "+a.Key] = true
			if a.Key == "href" || a.Key == "src" || a.Key == "action" {
				u, err := url.Parse(a.Val)
				if err != nil || u.Scheme != "" || u.Host != "" {
					names["to "+a.Val] = true
				}
			}
		}
	}
	return names
}

// FuzzQuery holds that whatever stands in the address of a page, the answer is a page or
// says what is wrong, has no element or attribute that the pages of the console do not have
// by themselves, leads nowhere else, and shows nothing of another tenant's.
func FuzzQuery(f *testing.F) {
	v, sub, ids := fuzzed(f)
	id := sub.ID.String()
	pages := []string{
		"", "endpoints", "deliveries", "dead", "dead/" + id, "dead/" + id + "/retrying", "endpoints/" + id + "/replaying", "streams", "outbox", "keys", "audit", "endpoints/" + id,
		"endpoints/" + id + "/streams", "endpoints/" + id + "/deliveries/" + ids[0].String(), "sign-in", "endpoints/new", "endpoints/" + id + "/editing",
		"event-types", "event-types/thing.changed", "event-types/thing.changed/editing", "event-types/thing.changed/deleting", "new-event-type",
	}
	// What a filter that finds something, one that finds nothing, and a problem are made of.
	known := map[string]bool{}
	for _, page := range pages {
		for _, query := range []string{
			"", "?type=x&asset=y&since=2020-01-01&until=2030-01-01&endpoint=" + id + "&state=dead&no_asset=1", "?state=x", "?before=x", "?after=x", "?endpoint=x", "?reason=x",
			"?before=1-1", "?state=dead&state=pending", "?letter=" + ids[0].String(), "?type=" + strings.Repeat("x", 3000), "?asset=a&before=9-9", "?since=x", "?endpoint=" + id,
			"?reason=http_status", "?after=" + id, "?queue=x", "?state=parked", "?next=/console/keys", "?after=dlv_1",
		} {
			for name := range parts(v.get(page + query).body) {
				known[name] = true
			}
		}
	}
	for i := range pages {
		for _, query := range []string{
			"", "state=dead&before=9223372036854775807-0", "before=9223372036854775807--9223372036854775808", `type="><script>alert(1)</script>`, "asset=%00%ff",
			"since=2026-01-31T15:04", "until=0001-01-01", "endpoint=" + id, "endpoint=sub_1", "tenant=other", "after=" + id, "next=//evil.example/", `next=/console/\evil`, "a;b=c",
			"reason=%27+x=", "letter=dlv_1&letter=x", "before=1", "state=" + strings.Repeat("dead&state=", 50),
		} {
			f.Add(byte(i), query)
		}
	}
	f.Fuzz(func(t *testing.T, page byte, query string) {
		v.during(t)
		if strings.IndexFunc(query, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }) >= 0 {
			query = url.PathEscape(query) // as no browser could send it
		}
		at := pages[int(page)%len(pages)] + "?" + query
		if _, err := url.Parse(at); err != nil {
			return
		}
		got := v.get(at)
		switch {
		case got.status >= 500 || got.status < 200:
			t.Fatalf("%s: answered %d", at, got.status)
		case got.status >= 300 && got.status < 400:
			if to := got.header.Get("Location"); !strings.HasPrefix(to, Root) {
				t.Fatalf("%s leads to %q", at, to)
			}
			return
		}
		for name := range parts(got.body) {
			if !known[name] {
				t.Fatalf("%s has %q:\n%s", at, name, got.body)
			}
		}
		if !utf8.ValidString(got.body) || strings.Contains(got.body, theirs) && !strings.Contains(query, theirs) {
			t.Fatalf("%s shows:\n%s", at, got.body)
		}
	})
}

// FuzzAnswer holds that whatever an endpoint answers is text on the page of its delivery:
// no element, no attribute and no control character more.
func FuzzAnswer(f *testing.F) {
	v, sub, _ := fuzzed(f)
	v.settle(succeed)
	for _, s := range []string{"ok", "\x00", "\xff\xfe", "a\x1b[2Jb", "\u202egnp.exe", "</pre><script>alert(1)</script>", "\r\n\t", `" onload="x`, "<!--", "&lt;b>"} {
		f.Add([]byte(s), []byte(s), uint16(500), byte(0))
	}
	page := func(body, headers []byte, status uint16, outcome byte) string {
		id := v.enqueue("acme", "thing.changed", "an answer")[0]
		outcomes := []string{"http_status", "delivered", "stalled", "", "tls_failure", "<i>"}
		v.settleClaims(v.claim(1), func(r *delivery.Result) {
			r.Attempt = delivery.AttemptEvidence{Started: time.Now(), Outcome: outcomes[int(outcome)%len(outcomes)], Status: int(status), Answered: true, Answer: body, Headers: headers}
		})
		got := v.get("endpoints/" + sub.ID.String() + "/deliveries/" + id.String())
		v.is.Equal(got.status, http.StatusOK)
		return got.body
	}
	known := map[string]bool{}
	for outcome := range byte(6) {
		for _, text := range []string{"", "plain"} {
			for name := range parts(page([]byte(text), []byte(text), 500, outcome)) {
				known[name] = true
			}
		}
	}
	f.Fuzz(func(t *testing.T, body, headers []byte, status uint16, outcome byte) {
		v.during(t)
		text := page(body, headers, status, outcome)
		for name := range parts(text) {
			if !known[name] {
				t.Fatalf("%q and %q add %q:\n%s", body, headers, name, text)
			}
		}
		if !utf8.ValidString(text) || strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) >= 0 {
			t.Fatalf("%q and %q make\n%q", body, headers, text)
		}
	})
}

// FuzzWithin holds that a form leads on within the console, whatever it was told.
func FuzzWithin(f *testing.F) {
	for _, s := range []string{"/console/keys?x=1", "//evil.example/console/", "https://evil.example/console/", `/console/\evil`, "/console/../x", "/console/%2e%2e/x", "\t//x", "/console/sign-out", "/console/#x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, next string) {
		to := within(next)
		u, err := url.Parse(to)
		if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(to, Root) || strings.ContainsAny(to, "\\\r\n\t") {
			t.Fatalf("%q leads to %q", next, to)
		}
		if within(to) != to {
			t.Fatalf("%q leads to %q, and that to %q", next, to, within(to))
		}
		// A browser takes what climbs out as what it climbs to.
		if clean := u.JoinPath(); !strings.HasPrefix(clean.Path+"/", Root) {
			t.Fatalf("%q leads to %q, which is %q", next, to, clean.Path)
		}
	})
}
