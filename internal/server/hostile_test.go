package server_test

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/dnstest"
)

// front is the one address that these tests' guard lets through. On the same port of
// another one, inside, is what a stranger would like to reach.
const front, inside = "127.0.0.2", "127.0.0.1"

// listenBoth listens at the same port of front and inside. It returns the receiver at
// front, and counts the connections inside.
func listenBoth(t *testing.T, handler http.Handler) (receiver *httptest.Server, reached *atomic.Int64) {
	t.Helper()
	for range 20 {
		outer, err := net.Listen("tcp", front+":0")
		if err != nil {
			t.Fatalf("a second address of loopback is needed: %v", err)
		}
		_, port, err := net.SplitHostPort(outer.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		inner, err := net.Listen("tcp", net.JoinHostPort(inside, port))
		if err != nil { // taken
			outer.Close()
			continue
		}
		receiver = &httptest.Server{Listener: outer, Config: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}}
		receiver.StartTLS()
		t.Cleanup(receiver.Close)
		reached = &atomic.Int64{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := inner.Accept()
				if err != nil {
					return
				}
				reached.Add(1)
				conn.Close()
			}
		}()
		t.Cleanup(func() {
			inner.Close()
			<-done
		})
		return receiver, reached
	}
	t.Fatal("no port is free at both addresses")
	return nil, nil
}

// What a resolver answers is a stranger's to choose, each time anew. On every way out of
// the server it leads to no address that the guard refuses.
func TestAHostileResolverLeadsNowhere(t *testing.T) {
	t.Parallel()
	dns := dnstest.Start(t)
	receiver, reached := listenBoth(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // so that the next request looks the name up again
	}))
	roots := x509.NewCertPool()
	roots.AddCert(receiver.Certificate())
	r := start(t, func(o *options) {
		o.policy = guard.Policy{Allow: []netip.Prefix{netip.MustParsePrefix(front + "/32")}}
		o.sender.Resolver, o.sender.RootCAs = dns.Resolver(), roots
	})
	_, port, err := net.SplitHostPort(receiver.Listener.Addr().String())
	r.is.NoErr(err)
	v := r.signIn()

	aliases := []string{"a.example.com", "b.example.net", "localhost"}
	bad := dnstest.Addrs(inside)
	for name, c := range map[string]struct {
		answers []dnstest.Answer // for each lookup; the last one stays
		// before is how many of the lookups are harmless, and delivered to.
		before int
	}{
		"inner":       {[]dnstest.Answer{bad}, 0},
		"mixed":       {[]dnstest.Answer{dnstest.Addrs("10.0.0.1", inside, "::1", "169.254.169.254", "192.168.0.1", "fd00::1")}, 0},
		"six":         {[]dnstest.Answer{dnstest.Addrs("::ffff:127.0.0.1", "::1", "64:ff9b::7f00:1", "::")}, 0},
		"unspecified": {[]dnstest.Answer{dnstest.Addrs("0.0.0.0", "::")}, 0},
		"many":        {[]dnstest.Answer{dnstest.Addrs(strings.Fields(strings.Repeat(inside+" ", 40))...)}, 0},
		"aliases":     {[]dnstest.Answer{{Aliases: aliases, Addrs: bad.Addrs}}, 0},
		"alternates":  {[]dnstest.Answer{dnstest.Addrs("10.0.0.1"), bad, dnstest.Addrs("::1"), {Aliases: aliases, Addrs: bad.Addrs}, bad}, 0},
		"rebinds":     {[]dnstest.Answer{dnstest.Addrs(front), bad}, 1},
		"rebinds late": {[]dnstest.Answer{
			{Aliases: aliases, Addrs: dnstest.Addrs(front).Addrs}, dnstest.Addrs(front), {Aliases: aliases, Addrs: bad.Addrs},
		}, 2},
	} {
		host := strings.ReplaceAll(name, " ", "-") + ".example.com"
		dns.Set(host, c.answers...)
		tenant := "tenant " + name
		status, text := r.do("POST", "/v1/subscriptions", fmt.Sprintf(`{"url":"https://%s:%s/","tenant":%q,"max_attempts":1}`, host, port, tenant))
		r.is.Equal(status, 201)
		var sub struct{ ID string }
		r.is.NoErr(json.Unmarshal([]byte(text), &sub))
		for n := range c.before + 3 {
			want := "blocked"
			if n < c.before {
				want = "delivered"
			}
			var got string
			switch n % 3 {
			case 0:
				got = r.dispatched(sub.ID, tenant)
			case 1:
				status, text = r.do("POST", "/v1/subscriptions/"+sub.ID+"/test", "")
				r.is.Equal(status, 200)
				var test struct{ Outcome string }
				r.is.NoErr(json.Unmarshal([]byte(text), &test))
				got = test.Outcome
			case 2:
				got = "delivered"
				if strings.Contains(v.press("/console/endpoints/"+sub.ID+"/test"), "URL or address is not allowed") {
					got = "blocked"
				}
			}
			if got != want {
				t.Errorf("%s, request %d: %s and not %s", name, n, got, want)
			}
		}
		r.is.True(dns.Lookups(host) >= c.before+3) // each looked the name up
	}
	r.is.Equal(reached.Load(), int64(0))
	r.stop()
	r.is.NoErr(<-r.done)
}

// dispatched sends an event to a subscription, and returns what came of its first attempt.
func (r *running) dispatched(sub, tenant string) string {
	status, _ := r.do("POST", "/v1/events", fmt.Sprintf(`{"tenant":%q,"events":[{"type":"a.b","payload":{}}]}`, tenant))
	r.is.Equal(status, 201)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		status, text := r.do("GET", "/v1/subscriptions/"+sub+"/deliveries?limit=1", "")
		r.is.Equal(status, 200)
		var list struct{ Data []struct{ ID, State string } }
		r.is.NoErr(json.Unmarshal([]byte(text), &list))
		if d := list.Data[0]; d.State == "delivered" || d.State == "dead" {
			_, text := r.do("GET", "/v1/subscriptions/"+sub+"/deliveries/"+d.ID, "")
			var shown struct {
				Made []struct{ Outcome string } `json:"attempts_made"`
			}
			r.is.NoErr(json.Unmarshal([]byte(text), &shown))
			return shown.Made[0].Outcome
		}
	}
}

// visitor is somebody who is signed in to the console.
type visitor struct {
	*running

	browser http.Client
	token   string
}

var token = regexp.MustCompile(`name="token" value="([^"]+)"`)

// signIn signs in with the operator's key.
func (r *running) signIn() *visitor {
	jar, err := cookiejar.New(nil)
	r.is.NoErr(err)
	v := &visitor{running: r, browser: http.Client{Jar: jar, Transport: r.client.Transport}}
	v.token = token.FindStringSubmatch(v.page(v.browser.Get(r.url + "/console/sign-in")))[1]
	home := v.page(v.browser.PostForm(r.url+"/console/sessions", url.Values{"key": {operatorKey}, "token": {v.token}}))
	v.token = token.FindStringSubmatch(home)[1]
	return v
}

// press posts a form without fields.
func (v *visitor) press(path string) string {
	return v.page(v.browser.PostForm(v.url+path, url.Values{"token": {v.token}}))
}

func (v *visitor) page(resp *http.Response, err error) string {
	v.is.NoErr(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	v.is.NoErr(err)
	v.is.Equal(resp.StatusCode, http.StatusOK)
	return string(text)
}
