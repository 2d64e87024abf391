package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/keys"
)

func TestSignInNeedsAKey(t *testing.T) {
	t.Parallel()
	s := setup(t)
	v := s.visitor()
	for _, path := range []string{"", "deliveries?state=dead", "nowhere"} {
		p := v.get(path)
		s.is.Equal(p.status, http.StatusSeeOther)
		s.is.True(strings.HasPrefix(p.header.Get("Location"), Root+"sign-in?next=%2Fconsole%2F"))
	}
	p := v.signIn("plk_not_a_key")
	s.is.Equal(p.status, http.StatusUnauthorized)
	v.in(p, "There is no such key, or it is revoked.")
	s.is.Equal(p.header.Get("Set-Cookie"), "") // no session
	s.is.True(!strings.Contains(p.body, "plk_not_a_key"))

	p = v.signIn(operatorKey)
	s.is.Equal(p.status, http.StatusSeeOther)
	s.is.Equal(p.header.Get("Location"), Root)
	v.has("", "Overview", "sees all tenants")
	s.is.Equal(one[int](s, "SELECT count(*) FROM postlane.console_sessions"), 1)
}

func TestTheSessionCookieIsForThisSiteAlone(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for name, proto := range map[string]string{"http": "", "https": "https"} {
		v := s.visitor()
		token := v.get("sign-in").token()
		r := httptest.NewRequestWithContext(s.ctx, http.MethodPost, Root+"sessions", strings.NewReader(url.Values{"key": {operatorKey}, "token": {token}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-Proto", proto)
		at, err := url.Parse(s.url + Root)
		s.is.NoErr(err)
		for _, c := range v.client.Jar.Cookies(at) {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		s.console.ServeHTTP(w, r)
		var session *http.Cookie
		for _, c := range w.Result().Cookies() {
			if c.Name == sessionCookie {
				session = c
			}
		}
		s.is.True(session != nil)
		s.is.True(session.HttpOnly)
		s.is.Equal(session.SameSite, http.SameSiteStrictMode)
		s.is.Equal(session.Path, Root)
		s.is.Equal(session.Secure, name == "https")
		s.is.Equal(session.MaxAge, int((12 * time.Hour).Seconds()))
		// What the database holds does not open a session.
		s.is.Equal(one[int](s, "SELECT count(*) FROM postlane.console_sessions WHERE encode(hash, 'escape') LIKE '%' || $1 || '%'", session.Value), 0)
	}
}

func TestWrongKeysAreLimited(t *testing.T) {
	t.Parallel()
	s := setup(t)
	v := s.visitor()
	for range keys.WrongKeys {
		s.is.Equal(v.signIn("wrong").status, http.StatusUnauthorized)
	}
	p := v.signIn(operatorKey) // even the right one has to wait
	s.is.Equal(p.status, http.StatusTooManyRequests)
	s.is.True(p.header.Get("Retry-After") != "")
	v.in(p, "Too many wrong keys")
}

func TestASessionEndsWithItsKey(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key, text, err := s.keys.Create(s.ctx, "Ada", "acme", keys.Write)
	s.is.NoErr(err)
	sub := s.subscribe("acme", "/hook")
	v := s.signedIn(text)
	token := v.has("", "Signed in as Ada", "tenant acme").token()
	_, err = s.keys.Revoke(s.ctx, key.ID)
	s.is.NoErr(err)
	s.is.Equal(v.get("").status, http.StatusSeeOther)
	p := v.send(endpointPath(sub.ID)+"/pause", url.Values{"token": {token}})
	s.is.Equal(p.status, http.StatusSeeOther)
	s.is.True(strings.HasPrefix(p.header.Get("Location"), Root+"sign-in"))
	is.New(t).Equal(one[string](s, "SELECT state FROM postlane.subscriptions"), "active")
}

func TestASessionEnds(t *testing.T) {
	t.Parallel()
	s := setup(t)
	t.Run("at its time", func(t *testing.T) {
		v := s.signedIn(operatorKey)
		s.exec("UPDATE postlane.console_sessions SET expires_at = now()")
		s.is.Equal(v.get("").status, http.StatusSeeOther)
		s.signedIn(operatorKey)
		s.is.Equal(one[int](s, "SELECT count(*) FROM postlane.console_sessions WHERE expires_at <= now()"), 0) // and is removed
	})
	t.Run("by signing out", func(t *testing.T) {
		v := s.signedIn(operatorKey)
		at, err := url.Parse(s.url + Root)
		s.is.NoErr(err)
		var session *http.Cookie
		for _, c := range v.client.Jar.Cookies(at) {
			if c.Name == sessionCookie {
				session = c
			}
		}
		p := v.press("sign-out")
		s.is.Equal(p.header.Get("Location"), Root+"sign-in")
		v.client.Jar.SetCookies(at, []*http.Cookie{session}) // a copy of the cookie is worth nothing
		s.is.Equal(v.get("").status, http.StatusSeeOther)
	})
	t.Run("with the environment's key", func(t *testing.T) {
		v := s.signedIn(operatorKey)
		other := setupOn(t, s.pool, func(c *Config) { c.OperatorKey = "another" })
		v.url = other.url
		at, err := url.Parse(s.url + Root)
		s.is.NoErr(err)
		to, err := url.Parse(other.url + Root)
		s.is.NoErr(err)
		v.client.Jar.SetCookies(to, v.client.Jar.Cookies(at))
		s.is.Equal(v.get("").status, http.StatusSeeOther)
	})
}

func TestWhereSigningInLeads(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for next, want := range map[string]string{
		"/console/deliveries?state=dead": "/console/deliveries?state=dead",
		"":                               Root,
		"https://evil.example/console/":  Root,
		"//evil.example/console/":        Root,
		`/console/\evil`:                 Root,
		"/v1/keys":                       Root,
		"/console/sign-out":              Root,
		"javascript:alert(1)":            Root,
		"/console/../v1/":                Root, // where a browser would climb out
	} {
		is.Equal(within(next), want) // next
	}
}

// actions are the addresses of all actions, in a scene.
func actions(x *scene, key string) []string {
	sub := endpointPath(x.flaky.ID)
	dead := deliveryPath(x.flaky.ID, x.dead)
	return []string{
		"sessions", "sign-out", "theme", "endpoints/create", sub + "/update", sub + "/pause", sub + "/enable", sub + "/delete", sub + "/rotate-secret", sub + "/test",
		dead + "/retry", dead + "/discard", dead + "/release", "dead/" + x.flaky.ID.String() + "/retry", "outbox/retry",
		"event-types/create?tenant=acme", "event-types/order.paid/update?tenant=acme", "event-types/order.paid/delete?tenant=acme", "keys/create", "keys/" + key + "/revoke",
	}
}

func TestBC55_NothingChangesByGET(t *testing.T) {
	t.Parallel()
	s := setup(t)
	x := s.scene()
	key, _, err := s.keys.Create(s.ctx, "Ada", "acme", keys.Write)
	s.is.NoErr(err)
	v := s.signedIn(operatorKey)
	token := v.get("").token()
	before := s.everything()
	for _, path := range actions(x, key.ID) {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			p := v.do(method, path+"?token="+token+"&sure=yes&reason=because&overlap=0&name=x&whose=operator&scope=write", nil)
			if p.status != http.StatusNotFound && p.status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, p.status)
			}
		}
	}
	for _, p := range pagesOf(x) { // nor by looking
		s.is.Equal(v.get(p[1]).status, http.StatusOK)
	}
	if after := s.everything(); after != before {
		t.Errorf("changed\nfrom\n%s\nto\n%s", before, after)
	}
}

func TestAFormMustBeOurs(t *testing.T) {
	t.Parallel()
	s := setup(t)
	x := s.scene()
	key, _, err := s.keys.Create(s.ctx, "Ada", "acme", keys.Write)
	s.is.NoErr(err)
	v := s.signedIn(operatorKey)
	token := v.get("").token()
	foreign := s.signedIn(operatorKey).get("").token() // another session's
	before := s.everything()
	form := url.Values{"sure": {"yes"}, "reason": {"because"}, "overlap": {"0"}, "name": {"x"}, "whose": {"operator"}, "scope": {"write"}, "key": {operatorKey}}
	for _, path := range actions(x, key.ID) {
		for name, token := range map[string]string{"none": "", "wrong": "x", "foreign": foreign} {
			form.Set("token", token)
			if p := v.send(path, form); p.status != http.StatusForbidden {
				t.Errorf("%s with a %s token: %d", path, name, p.status)
			}
		}
		// With the token, but from a page of another site.
		form.Set("token", token)
		r, err := http.NewRequestWithContext(s.ctx, http.MethodPost, s.url+Root+strings.TrimPrefix(path, Root), strings.NewReader(form.Encode()))
		s.is.NoErr(err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		answer, err := v.client.Do(r)
		s.is.NoErr(err)
		answer.Body.Close()
		s.is.Equal(answer.StatusCode, http.StatusForbidden)
	}
	if after := s.everything(); after != before {
		t.Errorf("changed\nfrom\n%s\nto\n%s", before, after)
	}
}

func TestAKeyThatMayOnlyRead(t *testing.T) {
	t.Parallel()
	s := setup(t)
	x := s.scene()
	v := s.signedIn(s.key("acme", keys.Read))
	for _, p := range pagesOf(x) {
		if strings.HasPrefix(p[0], "keys") || strings.HasPrefix(p[0], "outbox") {
			continue
		}
		page := v.get(p[1])
		s.is.Equal(page.status, http.StatusOK)
		_, body, found := strings.Cut(page.body, "<main")
		if !found || strings.Contains(body, `method="post"`) {
			t.Errorf("%s has a form that changes something", p[1])
		}
	}
	state := func() string {
		return one[string](s, "SELECT string_agg(s::text, ' ' ORDER BY id) FROM postlane.subscriptions s") + one[string](s, "SELECT string_agg(t::text, ' ' ORDER BY seq) FROM postlane.settled t")
	}
	before := state()
	n := 0
	for _, path := range actions(x, "key_1")[3:] {
		p := v.press(path, "sure", "yes", "reason", "because", "overlap", "0", "name", "x", "whose", "operator", "scope", "write")
		s.is.Equal(p.status, http.StatusForbidden)
		v.in(p, "may only read")
		n++
	}
	s.is.Equal(state(), before)
	s.is.Equal(one[int](s, "SELECT count(*) FROM postlane.audit WHERE outcome = 'read_only_key' AND status = 403"), n) // on record
}

func TestATenantSeesItsOwn(t *testing.T) {
	t.Parallel()
	s := setup(t)
	x := s.scene()
	v := s.signedIn(s.key("other", keys.Write))
	for _, p := range pagesOf(x) {
		if strings.Contains(p[1], "acme") {
			continue // would be repeated
		}
		page := v.get(p[1])
		if strings.Contains(page.body, "acme") {
			t.Errorf("%s tells of another tenant:\n%s", p[1], page.text())
		}
	}
	// What is another's is as what is not there, to the letter.
	gone := delivery.SubscriptionID(1)
	for _, p := range pagesOf(x) {
		if !strings.Contains(p[1], x.well.ID.String()) {
			continue
		}
		is := is.New(t)
		foreign, missing := v.get(p[1]), v.get(strings.ReplaceAll(p[1], x.well.ID.String(), gone.String()))
		is.Equal(foreign.status, http.StatusNotFound)
		is.Equal(missing.status, http.StatusNotFound)
		is.Equal(strings.ReplaceAll(foreign.body, x.well.ID.String(), "ID"), strings.ReplaceAll(missing.body, gone.String(), "ID"))
	}
	for _, path := range actions(x, "key_1")[3:] {
		p := v.press(path, "sure", "yes", "reason", "because", "overlap", "0", "name", "x", "whose", "operator", "scope", "write")
		want := http.StatusNotFound
		switch {
		case strings.HasPrefix(path, "keys/"), strings.HasPrefix(path, "outbox/"):
			want = http.StatusForbidden
		case path == "endpoints/create":
			want = http.StatusBadRequest // its own, and nothing is said of it
		case strings.HasPrefix(path, "event-types/create"):
			want = http.StatusSeeOther // its own, whatever it asks for
		}
		if p.status != want {
			t.Errorf("%s: %d", path, p.status)
		}
	}
	s.is.Equal(v.get("keys").status, http.StatusForbidden)
	s.is.Equal(v.get("outbox").status, http.StatusForbidden)
	v.has("?tenant=acme", "Overview") // asks in vain
	s.is.True(!strings.Contains(v.get("endpoints?tenant=acme").body, "acme.example"))
	// What is for operators: addresses, names of workers.
	own := v.has(deliveryPath(x.other.ID, one[delivery.ID](s, "SELECT seq FROM postlane.settled WHERE subscription_id = $1", int64(x.other.ID))), "410")
	s.is.True(!strings.Contains(own.body, "host-1"))
	operator := s.signedIn(operatorKey)
	operator.has(deliveryPath(x.flaky.ID, x.retried), "host-1", "10.1.2.3")
	tenant := s.signedIn(s.key("acme", keys.Write))
	s.is.True(!strings.Contains(tenant.get(deliveryPath(x.flaky.ID, x.retried)).body, "10.1.2.3"))
	s.is.True(!strings.Contains(tenant.get("").body, "Workers and leases"))
}

func TestAnOperatorChoosesATenant(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.scene()
	v := s.signedIn(operatorKey)
	v.has("endpoints", "partner.example.net", "ledger.acme.example")
	p := v.has("endpoints?tenant=other", "partner.example.net")
	s.is.True(!strings.Contains(p.body, "ledger.acme.example"))
	s.is.True(strings.Contains(p.body, `href="/console/dead?tenant=other"`)) // and keeps the choice
	s.is.True(!strings.Contains(v.get("deliveries?tenant=other").text(), "order.paid"))
}

func TestEveryAnswerHasItsHeaders(t *testing.T) {
	t.Parallel()
	s := setup(t)
	v := s.signedIn(operatorKey)
	for _, path := range []string{"", "sign-in", "nowhere", "deliveries?state=x", "assets/console.css", "assets/console.js"} {
		p := v.get(path)
		csp := p.header.Get("Content-Security-Policy")
		s.is.True(strings.Contains(csp, "default-src 'none'"))
		s.is.True(strings.Contains(csp, "frame-ancestors 'none'"))
		s.is.True(!strings.Contains(csp, "unsafe"))
		s.is.Equal(p.header.Get("X-Content-Type-Options"), "nosniff")
		if strings.HasPrefix(path, "assets") {
			continue
		}
		s.is.Equal(p.header.Get("Cache-Control"), "no-store")
		for _, inline := range []string{"<style", " style=", " onclick=", "<script>", "javascript:"} {
			if strings.Contains(p.body, inline) {
				t.Errorf("/%s has %s", path, inline)
			}
		}
		if strings.Contains(p.body, "http://") || strings.Contains(strings.ReplaceAll(p.body, "http://www.w3.org/", ""), "https://") {
			t.Errorf("/%s names another site", path)
		}
	}
}
