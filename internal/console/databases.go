package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postlane-go/postlane/internal/keys"
)

// databases are the consoles of several databases behind one address.
type databases struct {
	list    []*Console
	locator *keys.Locator
}

// Databases returns the handler of several databases' consoles. A browser is shown one of
// them: whoever signs in gets that of their key, and the operator's key of the environment
// may choose another, whose session is its own. The locator's stores are in the order of
// the list.
func Databases(list []*Console, locator *keys.Locator) http.Handler {
	d := &databases{list, locator}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Root+"sessions", d.signIn)
	mux.HandleFunc("POST "+Root+"database", d.choose)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { d.shown(r).ServeHTTP(w, r) })
	return list[0].outermost(mux)
}

// shown is the console that a browser was shown last.
func (d *databases) shown(r *http.Request) *Console {
	if cookie, err := r.Cookie(databaseCookie); err == nil {
		if i := slices.IndexFunc(d.list, func(c *Console) bool { return c.mark() == cookie.Value }); i >= 0 {
			return d.list[i]
		}
	}
	return d.list[0]
}

// choose shows another database's console from now on. It changes what the browser shows
// and nothing else, and works while the database shown before is away.
func (d *databases) choose(w http.ResponseWriter, r *http.Request) {
	name := r.PostFormValue("database")
	i := slices.IndexFunc(d.list, func(c *Console) bool { return c.Database == name })
	if i < 0 {
		d.list[0].refuse(w, r, nil, errNoPage)
		return
	}
	d.remember(w, r, d.list[i])
	http.Redirect(w, r, Root, http.StatusSeeOther)
}

func (d *databases) remember(w http.ResponseWriter, r *http.Request, c *Console) {
	setCookie(w, r, databaseCookie, c.mark(), 365*24*time.Hour)
}

// signIn has the console of the key's database answer.
func (d *databases) signIn(w http.ResponseWriter, r *http.Request) {
	c := d.shown(r)
	i, err := d.locator.Find(r.Context(), r.RemoteAddr, strings.TrimSpace(r.PostFormValue("key")))
	switch {
	case errors.Is(err, keys.ErrUnknown), errors.As(err, new(*keys.TooManyError)): // for it to refuse
	case err != nil:
		c.refuse(w, r, nil, &problem{http.StatusServiceUnavailable, "unavailable", "The database does not answer", "The key may be in a database that does not answer. Try again in a moment."})
		return
	case i == keys.Everywhere:
		c = d.answering(r.Context(), c)
		d.remember(w, r, c)
	default:
		c = d.list[i]
		d.remember(w, r, c)
	}
	c.ServeHTTP(w, r)
}

// answering is the wanted console, or while its database is away the first one whose
// answers.
func (d *databases) answering(ctx context.Context, wanted *Console) *Console {
	for _, c := range append([]*Console{wanted}, d.list...) {
		asked, cancel := context.WithTimeout(ctx, time.Second)
		err := c.Pool.Ping(asked)
		cancel()
		if err == nil {
			return c
		}
	}
	return wanted
}
