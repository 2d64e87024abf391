package console

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/pgerr"
)

// visit is one request of somebody who is signed in.
type visit struct {
	*Console
	w     http.ResponseWriter
	r     *http.Request
	ctx   context.Context
	who   *keys.Caller
	token string
	// entry is the record of an action, for it to say more; nil on a page.
	entry *audit.Entry
}

// showing is the handler of a page, read from the replica where there is one.
func (c *Console) showing(f func(*visit) error) http.HandlerFunc {
	return c.asking(func(v *visit) error { return c.read(v, f) })
}

// asking is the handler of a page that only the primary can answer.
func (c *Console) asking(f func(*visit) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &visit{Console: c, w: w, r: r, ctx: r.Context()}
		var err error
		if v.who, v.token, err = c.session(r.Context(), r); err == nil {
			err = f(v)
		}
		if err != nil {
			c.refuse(w, r, v, err)
		}
	}
}

// read makes a page from the replica, where there is one, for a visitor whose changes it
// has. What fails there, or is not there yet, is asked of the primary: a page is written
// when all of it is read.
func (c *Console) read(v *visit, f func(*visit) error) error {
	if !c.Replica.Fresh(v.who.ID) {
		return f(v)
	}
	v.Console = c.standby
	err := f(v)
	v.Console = c
	switch {
	case err != nil && v.ctx.Err() == nil && pgerr.Standby(err):
		c.Replica.Failed(err)
	case !errors.Is(err, delivery.ErrNotFound):
		return err
	}
	return f(v)
}

// acting is the handler of an action: a form of ours, from somebody who may write, on
// record before it begins and with its outcome after. A change that cannot be recorded is
// not made; one that was made is recorded even if its browser has gone.
func (c *Console) acting(name string, f func(*visit) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &visit{Console: c, w: w, r: r, ctx: r.Context()}
		var err error
		if v.who, v.token, err = c.session(r.Context(), r); err != nil {
			c.refuse(w, r, v, err)
			return
		}
		if err := r.ParseForm(); errors.As(err, new(*http.MaxBytesError)) {
			c.refuse(w, r, v, err)
			return
		}
		if !fromOurForm(r, v.token) {
			c.refuse(w, r, v, errForeignForm)
			return
		}
		v.entry = &audit.Entry{Actor: v.who.ID, ActorName: v.who.Name, Tenant: v.who.Tenant, Action: name, Target: audit.Target(r)}
		if err := c.audit.Begin(r.Context(), v.entry); err != nil {
			c.refuse(w, r, v, err)
			return
		}
		v.entry.Status, v.entry.Outcome = http.StatusOK, "ok"
		if v.who.Scope != keys.Write {
			err = errReadOnly
		} else {
			err = f(v)
		}
		if err != nil {
			p := problemOf(err)
			v.entry.Status, v.entry.Outcome = p.status, p.code
		}
		finish, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second)
		defer cancel()
		c.Replica.Wrote(finish, v.who.ID)
		if e := c.audit.End(finish, v.entry); e != nil {
			c.Logger.Error("what came of an action could not be recorded", "error", e, "action", name, "target", v.entry.Target, "outcome", v.entry.Outcome)
		}
		if err != nil {
			c.refuse(w, r, v, err)
		}
	}
}

// read runs statements in a transaction that may only read and that the database ends in
// time.
func (v *visit) read(f func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(v.ctx, v.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := queries.LogSettings(v.ctx, tx, 4000); err != nil {
			return err
		}
		return f(tx)
	})
}

// operator reports whether the visitor sees all tenants.
func (v *visit) operator() bool { return v.who.Operator() }

// tenant is whose things a page shows: the visitor's own, or the one that an operator
// chose; "" for all.
func (v *visit) tenant() string {
	if !v.operator() {
		return v.who.Tenant
	}
	return v.query("tenant")
}

// query is a parameter of the page's address, as text that the database can take.
func (v *visit) query(name string) string { return clean(v.r.URL.Query().Get(name)) }

// form is a field of the form.
func (v *visit) form(name string) string { return clean(v.r.PostFormValue(name)) }

// text is a field of the form that may be long, with the line ends of Unix.
func (v *visit) text(name string) string {
	return strings.ReplaceAll(storable(v.r.PostFormValue(name)), "\r\n", "\n")
}

func clean(s string) string {
	const longest = 2000
	s = storable(s)
	if len(s) > longest {
		s = s[:longest]
		for !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
	}
	return strings.TrimSpace(s)
}

// storable is text without what the database cannot take.
func storable(s string) string {
	return strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD"))
}

// subscription is the one in the path, if the visitor may see it. What it may not see is
// as what is not there.
func (v *visit) subscription() (*delivery.Subscription, error) {
	return v.subscriptionOf(v.r.PathValue("id"))
}

func (v *visit) subscriptionOf(text string) (*delivery.Subscription, error) {
	id, err := delivery.ParseSubscriptionID(text)
	if err != nil {
		return nil, err
	}
	sub, err := v.Store.Subscription(v.ctx, id)
	if err != nil {
		return nil, err
	}
	if !v.operator() && sub.Tenant != v.who.Tenant {
		return nil, delivery.ErrNotFound
	}
	if v.entry != nil {
		v.entry.Tenant = sub.Tenant
	}
	return sub, nil
}

// note adds to the record of an action.
func (v *visit) note(detail string) {
	if v.entry != nil {
		v.entry.Detail = detail
	}
}

// see ends an action: the browser is sent to a page, which tells once what was done.
func (v *visit) see(path, notice string) error {
	setCookie(v.w, v.r, noticeCookie, base64.RawURLEncoding.EncodeToString([]byte(notice)), time.Minute)
	http.Redirect(v.w, v.r, path, http.StatusSeeOther)
	return nil
}

// back is the page that a form stood on, or another.
func (v *visit) back(otherwise string) string {
	if next := v.r.PostFormValue("next"); next != "" {
		return within(next)
	}
	return otherwise
}

// notice takes what an action left to be told.
func (v *visit) notice() string {
	cookie, err := v.r.Cookie(noticeCookie)
	if err != nil || len(cookie.Value) > 2000 {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return ""
	}
	setCookie(v.w, v.r, noticeCookie, "", -1)
	return clean(string(text))
}

// path is an address within the console that keeps the chosen tenant.
func (v *visit) path(path string, pairs ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	if v.operator() && v.tenant() != "" && !values.Has("tenant") {
		values.Set("tenant", v.tenant())
	}
	address := Root + strings.TrimPrefix(path, "/")
	if len(values) > 0 {
		address += "?" + values.Encode()
	}
	return address
}

// endpointPath is the page of a subscription.
func endpointPath(id delivery.SubscriptionID) string { return Root + "endpoints/" + id.String() }

// deliveryPath is the page of a delivery.
func deliveryPath(sub delivery.SubscriptionID, id delivery.ID) string {
	return endpointPath(sub) + "/deliveries/" + id.String()
}
