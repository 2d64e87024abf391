package console

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

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
	from := keys.Place(r.RemoteAddr)
	key := strings.TrimSpace(r.PostFormValue("key"))
	who, err := c.attempts.Find(r.Context(), r.RemoteAddr, key)
	if many, ok := errors.AsType[*keys.TooManyError](err); ok {
		seconds := strconv.Itoa(int(many.Wait.Seconds()) + 1)
		v.Problem = "Too many wrong keys. Try again in " + seconds + " seconds."
		w.Header().Set("Retry-After", seconds)
		c.askForKey(w, r, http.StatusTooManyRequests, v)
		return
	}
	if errors.Is(err, keys.ErrUnknown) {
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
	if err == nil && !fromOurForm(r, token) {
		err = errForeignForm
	}
	if err != nil {
		c.refuse(w, r, nil, err)
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
		!strings.HasPrefix(path.Clean(u.Path)+"/", Root) || strings.ContainsAny(next, "\\\r\n") || strings.HasPrefix(u.Path, Root+"sign-") {
		return Root
	}
	return u.RequestURI()
}
