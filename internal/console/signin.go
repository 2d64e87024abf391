package console

import (
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postlane-go/postlane/internal/keys"
)

type signInView struct {
	Next    string
	Problem string
}

// signInPage asks for a key. Its form carries the token of a cookie of its own, so that
// nobody can be signed in with another's key by a foreign page.
func (c *Console) signInPage(w http.ResponseWriter, r *http.Request) {
	v := signInView{Next: within(r.URL.Query().Get("next"))}
	if _, _, err := c.session(r.Context(), r); err == nil {
		http.Redirect(w, r, v.Next, http.StatusSeeOther)
		return
	}
	c.askForKey(w, r, http.StatusOK, v)
}

func (c *Console) askForKey(w http.ResponseWriter, r *http.Request, status int, v signInView) {
	value := ""
	if cookie, err := r.Cookie(formCookie); err == nil && len(cookie.Value) < 200 {
		value = cookie.Value
	}
	if value == "" {
		value = rand.Text()
		setCookie(w, r, formCookie, value, time.Hour)
	}
	p := c.frame(r, nil)
	p.Token, p.Title, p.Body = formToken(value), "Sign in", v
	c.write(w, status, "sign-in", p)
}

// signIn begins a session with the key of the form.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	v := signInView{Next: within(r.PostFormValue("next"))}
	cookie, err := r.Cookie(formCookie)
	if err != nil || !fromOurForm(r, formToken(cookie.Value)) {
		v.Problem = "This form is too old, or your browser refuses cookies. Try again."
		c.askForKey(w, r, http.StatusForbidden, v)
		return
	}
	from := address(r)
	if wait := c.signIns.wait(from); wait > 0 {
		v.Problem = "Too many wrong keys. Try again in " + strconv.Itoa(int(wait.Seconds())+1) + " seconds."
		w.Header().Set("Retry-After", strconv.Itoa(int(wait.Seconds())+1))
		c.askForKey(w, r, http.StatusTooManyRequests, v)
		return
	}
	key := strings.TrimSpace(r.PostFormValue("key"))
	who, err := c.keys.Find(r.Context(), key)
	if errors.Is(err, keys.ErrUnknown) {
		c.signIns.failed(from)
		c.Logger.Warn("somebody tried to sign in with a wrong key", "from", from)
		v.Problem = "There is no such key, or it is revoked."
		c.askForKey(w, r, http.StatusUnauthorized, v)
		return
	}
	if err == nil {
		err = c.open(w, r, key)
	}
	if err != nil {
		c.refuse(w, r, nil, err)
		return
	}
	c.Logger.Info("signed in to the console", "key", who.ID, "from", from)
	setCookie(w, r, formCookie, "", -1)
	http.Redirect(w, r, v.Next, http.StatusSeeOther)
}

// signOut ends the session.
func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	_, token, err := c.session(r.Context(), r)
	switch {
	case errors.Is(err, errSignedOut): // already
	case err != nil:
		c.refuse(w, r, nil, err)
		return
	case !fromOurForm(r, token):
		c.refuse(w, r, nil, errForeignForm)
		return
	}
	if err := c.end(w, r); err != nil {
		c.refuse(w, r, nil, err)
		return
	}
	http.Redirect(w, r, Root+"sign-in", http.StatusSeeOther)
}

// setTheme remembers in the browser whether pages are light or dark.
func (c *Console) setTheme(w http.ResponseWriter, r *http.Request) {
	_, token, err := c.session(r.Context(), r)
	if err != nil || !fromOurForm(r, token) {
		c.refuse(w, r, nil, errForeignForm)
		return
	}
	switch theme := r.PostFormValue("theme"); theme {
	case "light", "dark":
		setCookie(w, r, themeCookie, theme, 365*24*time.Hour)
	default: // as the system has it
		setCookie(w, r, themeCookie, "", -1)
	}
	next := within(r.PostFormValue("next"))
	http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // a path of the console, and nothing else
}

// within returns where to go on after a form: a path of the console, and nothing else.
func within(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || !strings.HasPrefix(u.Path, Root) ||
		strings.ContainsAny(next, "\\\r\n") || strings.HasPrefix(u.Path, Root+"sign-") {
		return Root
	}
	return u.RequestURI()
}

// address is where a request comes from, for counting: an IPv6 network is one place.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a = a.Unmap(); a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}

// signIns counts wrong keys: ten at once from one address, then one in six seconds, and
// ten times that from everywhere. A key cannot be guessed anyway; this keeps the guessing
// from costing anything.
type signIns struct {
	mu   sync.Mutex
	all  *rate.Limiter
	from map[string]*rate.Limiter
}

const (
	wrongKeys     = 10
	wrongKeyEvery = 6 * time.Second
	maxAddresses  = 10_000
)

func newSignIns() *signIns {
	return &signIns{all: rate.NewLimiter(10*rate.Every(wrongKeyEvery), 10*wrongKeys), from: map[string]*rate.Limiter{}}
}

// wait returns for how long an address has to wait before it may try again.
func (s *signIns) wait(from string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.from[from]; l != nil && l.Tokens() < 1 {
		return time.Duration((1 - l.Tokens()) * float64(wrongKeyEvery))
	}
	if s.all.Tokens() < 1 {
		return wrongKeyEvery / 10
	}
	return 0
}

// failed counts a wrong key.
func (s *signIns) failed(from string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.from[from]
	if l == nil {
		if len(s.from) >= maxAddresses {
			clear(s.from)
		}
		l = rate.NewLimiter(rate.Every(wrongKeyEvery), wrongKeys)
		s.from[from] = l
	}
	l.Allow()
	s.all.Allow()
}
