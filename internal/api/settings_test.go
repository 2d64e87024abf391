package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
)

// row is a subscription as it is stored.
func (b *bundle) row(path string) string {
	b.t.Helper()
	return one[string](b, `SELECT s::text FROM postlane.subscriptions s WHERE id = $1`, int64(b.id(path)))
}

// BC-42: the rules for URLs are the same on update as on create.
func TestBC42_UpdateKeepsTheRulesForURLs(t *testing.T) {
	t.Parallel()
	b := setupPolicy(t, guard.Policy{})
	path := b.subscribe(map[string]any{"url": "https://example.com/hook"})
	before := b.row(path)
	for _, url := range []string{
		"http://169.254.169.254/", "https://169.254.169.254/", "https://127.0.0.1/", "https://10.0.0.1/", "ftp://example.com", "http://", "/relative",
		"https://user:pass@example.com/", "http://example.com/", "https://0x7f.1/", "https://[::1]/", "https://example.com:25/",
	} {
		created := b.do(b.acme, "POST", "/v1/subscriptions", map[string]any{"url": url})
		updated := b.do(b.acme, "PATCH", path, map[string]any{"url": url})
		b.refused("url_refused", updated)
		b.is.Equal(updated.status, 400)
		b.is.Equal(string(updated.body), string(created.body))
		b.is.True(updated.object(b)["rule"].(string) != "")
		b.is.Equal(b.row(path), before)
	}
	b.is.Equal(b.do(b.acme, "PATCH", path, map[string]any{"url": "http://169.254.169.254/"}).object(b)["rule"], "scheme")
	b.is.Equal(b.do(b.acme, "PATCH", path, map[string]any{"url": "https://169.254.169.254/"}).object(b)["rule"], "metadata")

	// What got past them all the same is not asked, by a test no more than by a delivery.
	b.exec(`UPDATE postlane.subscriptions SET url = 'https://127.0.0.1/'`)
	tested := b.want(200, b.acme, "POST", path+"/test", nil).object(b)
	b.is.Equal([]any{tested["delivered"], tested["outcome"], tested["status"]}, []any{false, "blocked", nil})
}

// BC-43: a reserved header is refused by its name, and one that got past replaces nothing.
func TestBC43_ReservedHeadersAreRefusedByName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() }))
	defer server.Close()
	for _, name := range []string{"Webhook-Signature", "webhook-ID", "WEBHOOK-TIMESTAMP", "Content-Type", "postlane-Attempt", "Host", "Transfer-Encoding"} {
		body := map[string]any{"url": server.URL, "headers": map[string]string{name: "a-value-of-mine"}}
		text := b.refused("invalid", b.do(b.acme, "POST", "/v1/subscriptions", body))
		b.is.True(strings.Contains(text, name))
		b.is.True(!strings.Contains(text, "a-value-of-mine")) // may be a credential
	}
	for _, headers := range []map[string]string{{"X-A": "line\r\nbreak"}, {"": "x"}, {"X A": "x"}, {"x-a": "1", "X-A": "2"}, {"X-A": strings.Repeat("x", 3000)}} {
		b.refused("invalid", b.do(b.acme, "POST", "/v1/subscriptions", map[string]any{"url": server.URL, "headers": headers}))
	}
	path := b.subscribe(map[string]any{"url": server.URL, "headers": map[string]string{"X-Env": "a-value-of-mine"}})
	shown := b.want(200, b.acme, "GET", path, nil)
	b.is.True(!strings.Contains(string(shown.body), "a-value-of-mine"))
	b.is.Equal(shown.object(b)["header_names"], []any{"X-Env"})
	b.is.Equal(b.want(200, b.acme, "POST", path+"/test", nil).object(b)["delivered"], true)
	b.is.Equal(got.Get("X-Env"), "a-value-of-mine")
	signature := got.Get("Webhook-Signature")

	planted := `{"Webhook-Signature":"v1,mine","webhook-id":"mine","WEBHOOK-TIMESTAMP":"1","content-type":"text/mine","X-Fine":"yes"}`
	b.exec(`UPDATE postlane.subscriptions SET headers = $1, headers_key_id = NULL`, []byte(planted))
	b.is.Equal(b.want(200, b.acme, "POST", path+"/test", nil).object(b)["delivered"], true)
	b.is.Equal(got.Get("X-Fine"), "yes")
	for _, name := range []string{"Webhook-Signature", "Webhook-Id", "Webhook-Timestamp", "Content-Type"} {
		b.is.Equal(len(got[name]), 1)
		b.is.True(!strings.Contains(got.Get(name), "mine"))
	}
	b.is.True(signature != got.Get("Webhook-Signature"))
}

// BC-44: the secret is in the answers to creating and rotating, and nowhere else.
func TestBC44_TheSecretIsShownOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	created := b.want(201, b.acme, "POST", "/v1/subscriptions", map[string]any{"url": endpoint, "v1a": true, "headers": map[string]string{"Authorization": "Bearer of-the-receiver"}})
	secret := created.object(b)["secret"].(string)
	b.is.True(strings.HasPrefix(secret, "whsec_"))
	signing := created.object(b)["signing"].(map[string]any)
	b.is.True(strings.Contains(signing["timestamp"].(string), "5 minutes"))
	b.is.True(strings.Contains(signing["snippet"].(string), "timingSafeEqual"))
	path := created.header.Get("Location")
	rotated := b.want(200, b.acme, "POST", path+"/rotate-secret", nil).object(b)
	b.is.Equal(rotated["overlap_seconds"], 86400.0)
	second := rotated["secret"].(string)
	b.is.True(second != secret)
	for _, a := range []answer{
		b.want(200, b.acme, "GET", path, nil), b.want(200, b.acme, "GET", "/v1/subscriptions", nil), b.want(200, b.acme, "PATCH", path, map[string]any{"description": "x"}),
		b.want(200, b.acme, "GET", "/v1/audit", nil), b.want(200, operatorKey, "GET", "/v1/audit", nil), b.want(200, b.acme, "POST", path+"/pause", nil),
		b.want(200, b.acme, "POST", path+"/enable", nil), b.want(200, b.acme, "POST", path+"/test", nil),
	} {
		for _, hidden := range []string{secret, second, "whsec_", "whsk_", "of-the-receiver"} {
			b.is.True(!strings.Contains(string(a.body), hidden))
		}
	}
	// Neither do the tables hold them in the clear.
	for _, table := range []string{"subscriptions", "subscription_secrets", "audit"} {
		text := one[string](b, `SELECT coalesce(string_agg(t::text, ' '), '') FROM postlane.`+table+` t`)
		b.is.True(!strings.Contains(text, secret))
	}
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.subscription_secrets WHERE key_id IS NULL`), int64(0))
	b.refused("invalid", b.do(b.acme, "POST", path+"/rotate-secret", map[string]any{"overlap_seconds": 604801}))
	b.refused("invalid", b.do(b.acme, "POST", path+"/rotate-secret", map[string]any{"overlap_seconds": -1}))
	b.is.Equal(b.want(200, b.acme, "POST", path+"/rotate-secret", map[string]any{"overlap_seconds": 0}).object(b)["overlap_seconds"], 0.0)
}

// BC-47: an empty list is [], no event types are all, and an empty list of them is refused.
func TestBC47_EmptyListsAndEmptyAllowLists(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/v1/subscriptions", "/v1/audit", "/v1/keys?tenant=nobody"} {
		a := b.want(200, operatorKey, "GET", path, nil)
		b.is.Equal(strings.TrimSpace(string(a.body)), `{"data":[],"next_cursor":null}`)
	}
	path := b.subscribe(nil)
	for _, list := range []string{"/deliveries", "/streams"} {
		a := b.want(200, b.acme, "GET", path+list, nil)
		b.is.Equal(strings.TrimSpace(string(a.body)), `{"data":[],"next_cursor":null}`)
	}
	b.is.Equal(b.want(200, b.acme, "GET", path, nil).object(b)["event_types"], []any{"*"})
	text := b.refused("invalid", b.do(b.acme, "POST", "/v1/subscriptions", map[string]any{"url": endpoint, "event_types": []string{}}))
	b.is.True(strings.Contains(text, "body.event_types"))
	b.refused("invalid", b.do(b.acme, "PATCH", path, map[string]any{"event_types": []string{}}))
	b.enqueue("a")
	b.is.Equal(len(b.data(b.want(200, b.acme, "GET", path+"/deliveries", nil))), 1)
}

// BC-48: absent, null and empty are three things.
func TestBC48_AbsentNullAndEmpty(t *testing.T) {
	t.Parallel()
	b := setup(t)
	full := map[string]any{
		"description": "books", "event_types": []string{"a.b"}, "on_dead": "hold", "max_attempts": 3, "max_in_flight": 7, "rate_limit": "5/m", "disable_after": 5, "v1a": true,
		"headers": map[string]string{"X-A": "1"},
	}
	path := b.subscribe(full)
	shown := func() map[string]any {
		v := b.want(200, b.acme, "GET", path, nil).object(b)
		delete(v, "updated_at")
		return v
	}
	secrets := func() string {
		return one[string](b, `SELECT string_agg(s::text, ' ' ORDER BY number) FROM postlane.subscription_secrets s`)
	}
	keys := secrets()
	start := shown()
	before := b.row(path)
	b.want(200, b.acme, "PATCH", path, map[string]any{})
	b.is.Equal(b.row(path), before) // not even a new revision
	for _, c := range []struct {
		patch, field string
		want         any
	}{
		{`{"description":null}`, "description", nil},
		{`{"description":""}`, "description", ""},
		{`{"max_in_flight":null}`, "max_in_flight", nil},
		{`{"rate_limit":"10/30s"}`, "rate_limit", "10/30s"},
		{`{"rate_limit":null}`, "rate_limit", nil},
		{`{"disable_after":null}`, "disable_after", nil},
		{`{"max_attempts":null}`, "max_attempts", 8.0},
		{`{"event_types":null}`, "event_types", []any{"*"}},
		{`{"on_dead":null}`, "on_dead", "continue"},
		{`{"headers":null}`, "header_names", []any{}},
	} {
		is := is.New(t)
		want := shown()
		want[c.field] = c.want
		b.want(200, b.acme, "PATCH", path, c.patch)
		is.Equal(shown(), want) // and no other field moved
	}
	for _, field := range []string{"id", "tenant", "url", "state", "state_since", "failure_count", "created_at", "v1a", "public_key"} {
		b.is.Equal(shown()[field], start[field])
	}
	b.is.Equal(secrets(), keys)
	for _, patch := range []string{
		`{"url":null}`, `{"url":""}`, `{"v1a":null}`, `{"max_attempts":0}`, `{"max_in_flight":0}`, `{"rate_limit":"fast"}`, `{"rate_limit":"1/90000s"}`, `{"rate_limit":""}`, `{"disable_after":0}`, `{"on_dead":"explode"}`, `{"limit":1}`,
		`{"URL":"http://127.0.0.1:1/"}`, `{"state":"paused"}`, `{"tenant":"other"}`, `{"description":5}`, `null`, `[]`, `{"description":"x"} {}`, `{`, ``,
	} {
		got := b.do(b.acme, "PATCH", path, patch)
		if got.status != 400 {
			t.Errorf("PATCH %s: %d %s", patch, got.status, got.body)
		}
	}
	text := b.refused("invalid", b.do(b.acme, "PATCH", path, `{"limit":1}`))
	b.is.True(strings.Contains(text, "body.limit"))
}

// BC-53: a test is neither counted nor stops anything, and runs while it is disabled.
func TestBC53_TestsAreNotCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusTeapot)
	}))
	defer server.Close()
	path := b.subscribe(map[string]any{"url": server.URL, "disable_after": 3})
	before := b.row(path)
	for range 5 {
		got := b.want(200, b.acme, "POST", path+"/test", nil).object(b)
		b.is.Equal(got["delivered"], false)
		b.is.Equal(got["status"], 418.0)
	}
	b.is.Equal(b.row(path), before)
	b.exec(`UPDATE postlane.subscriptions SET state = 'disabled'`)
	b.is.Equal(b.want(200, b.acme, "POST", path+"/test", nil).object(b)["status"], 418.0)
	b.is.Equal(asked.Load(), int64(6))
	server.Close()
	got := b.want(200, b.acme, "POST", path+"/test", nil).object(b)
	b.is.Equal(got["status"], nil)
	b.is.Equal(got["outcome"], "connection_refused")
}

// A subscription with v1a is signed twice, and either key alone verifies.
func TestV1aSignsBesideV1(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() }))
	defer server.Close()
	path := b.subscribe(map[string]any{"url": server.URL})
	b.is.Equal(b.want(200, b.acme, "GET", path, nil).object(b)["public_key"], nil)
	key := b.want(200, b.acme, "PATCH", path, map[string]any{"v1a": true}).object(b)["public_key"].(string)
	b.is.True(strings.HasPrefix(key, "whpk_"))
	signatures := func() (v1, v1a int) {
		b.want(200, b.acme, "POST", path+"/test", nil)
		for s := range strings.SplitSeq(got.Get("Webhook-Signature"), " ") {
			if strings.HasPrefix(s, "v1a,") {
				v1a++
			} else {
				v1++
			}
		}
		return v1, v1a
	}
	v1, v1a := signatures()
	b.is.Equal([]int{v1, v1a}, []int{1, 1})
	rotated := b.want(200, b.acme, "POST", path+"/rotate-secret", nil).object(b)
	b.is.True(rotated["public_key"] != key)
	b.is.Equal(b.want(200, b.acme, "GET", path, nil).object(b)["public_key"], rotated["public_key"])
	v1, v1a = signatures()
	b.is.Equal([]int{v1, v1a}, []int{2, 2}) // the old ones go on beside the new
	b.is.Equal(b.want(200, b.acme, "PATCH", path, map[string]any{"v1a": false}).object(b)["public_key"], nil)
	v1, v1a = signatures()
	b.is.Equal([]int{v1, v1a}, []int{2, 0})
}

// Every problem is JSON of one shape, and says where and what.
func TestUnknownIsRefusedByName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.subscribe(nil)
	for _, c := range []struct{ method, path, body, code, says string }{
		{"GET", "/v1/subscriptions?limit=0", "", "invalid", "query.limit"},
		{"GET", "/v1/subscriptions?limit=501", "", "invalid", "query.limit"},
		{"GET", "/v1/subscriptions?colour=red", "", "invalid", "query.colour"},
		{"GET", path + "/deliveries?state=lost", "", "invalid", `\"lost\"`},
		{"GET", path + "/deliveries?since=yesterday", "", "invalid", "query.since"},
		{"POST", "/v1/subscriptions", `{"url":"http://127.0.0.1:1/","colour":"red"}`, "invalid", "body.colour"},
		{"POST", "/v1/subscriptions", `{"event_types":["a"]}`, "invalid", "url"},
		{"POST", "/v1/subscriptions", `{"url":"http://127.0.0.1:8099/","event_types":["no spaces"]}`, "invalid", "body.event_types"},
		{"GET", "/v1/nothing", "", "not_found", ""},
		{"DELETE", "/v1/subscriptions", "", "method_not_allowed", ""},
	} {
		var body any
		if c.body != "" {
			body = c.body
		}
		text := b.refused(c.code, b.do(b.acme, c.method, c.path, body))
		if !strings.Contains(text, c.says) {
			t.Errorf("%s %s does not say %s: %s", c.method, c.path, c.says, text)
		}
		var p struct{ Type, Title string }
		b.is.NoErr(json.Unmarshal([]byte(text), &p))
		b.is.Equal(p.Type, "/docs#"+c.code)
		b.is.True(p.Title != "")
	}
	b.is.Equal(b.do(b.acme, "DELETE", "/v1/subscriptions", nil).header.Get("Allow"), "GET, HEAD, POST")
}

func TestConditionsAreSetShownAndRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.subscribe(map[string]any{"conditions": json.RawMessage(`[{"path":"data.id","op":"eq","value":12345678901234567890},{"path":"data.note","op":"exists"}]`)})
	shown := func() string {
		var s struct{ Conditions json.RawMessage }
		b.is.NoErr(json.Unmarshal(b.want(200, b.acme, "GET", path, nil).body, &s))
		return string(s.Conditions)
	}
	const want = `[{"path":"data.id","op":"eq","value":12345678901234567890},{"path":"data.note","op":"exists","value":true}]`
	b.is.Equal(shown(), want)
	b.want(200, b.acme, "PATCH", path, map[string]any{"description": "x"})
	b.is.Equal(shown(), want)
	for body, part := range map[string]string{
		`{"conditions":[{"path":"a b","op":"exists"}]}`: "body.conditions", `{"conditions":[{"path":"a","op":"like","value":1}]}`: "body.conditions[0].op",
		`{"conditions":[{"path":"a","op":"gt"}]}`: "needs a number or a string", `{"conditions":[{"path":"a"}]}`: "op",
	} {
		b.is.True(strings.Contains(b.refused("invalid", b.do(b.acme, "PATCH", path, json.RawMessage(body))), part))
	}
	b.is.Equal(shown(), want)
	b.want(200, b.acme, "PATCH", path, map[string]any{"conditions": nil})
	b.is.Equal(shown(), "[]")
}

func TestAnOpenBreakerIsShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.subscribe(nil)
	shown := func() any { return b.want(200, b.acme, "GET", path, nil).object(b)["breaker"] }
	b.is.Equal(shown(), nil)
	b.enqueue("a")
	_, err := b.store.Settle(b.ctx, []delivery.Result{{Claim: &b.claim(1)[0], Verdict: delivery.Failed, Unavailable: true, Asked: time.Minute}})
	b.is.NoErr(err)
	breaker := shown().(map[string]any)
	b.is.Equal(breaker["failures"], 1.0)
	b.is.True(breaker["open_since"].(string) < breaker["next_probe_at"].(string))
	b.is.Equal(b.data(b.want(200, b.acme, "GET", "/v1/subscriptions", nil))[0].(map[string]any)["breaker"], breaker)
	b.want(200, b.acme, "POST", path+"/enable", nil)
	b.is.Equal(shown(), nil)
}
