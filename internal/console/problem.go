package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/pgerr"
)

// problem is a refusal as a page tells it. code is that of the HTTP API.
type problem struct {
	status        int
	code          string
	title, detail string
}

func (p *problem) Error() string { return p.code + ": " + p.detail }

var (
	errNoPage      = &problem{http.StatusNotFound, "not_found", "Not found", "There is no such page, or nothing there that this key may see."}
	errForeignForm = &problem{http.StatusForbidden, "forbidden", "The form was not accepted", "It does not come from a page of this session, or that session is over. Go back, reload, and try again."}
	errReadOnly    = &problem{http.StatusForbidden, "read_only_key", "This key may only read", "Sign in with a key whose scope is write to do that."}
	errOperator    = &problem{http.StatusForbidden, "operator_only", "This is an operator's", "The key that you are signed in with is a tenant's."}
)

// invalid is a problem with something that was chosen or typed.
func invalid(detail string) error {
	return &problem{http.StatusBadRequest, "invalid", "That cannot be", detail}
}

// problemOf is what a page says of an error.
func problemOf(err error) *problem {
	var p *problem
	var value *delivery.InvalidError
	var refusal *guard.Refusal
	var tooLarge *http.MaxBytesError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &value):
		return &problem{http.StatusBadRequest, "invalid", "That cannot be", value.Field + " " + value.Problem}
	case errors.As(err, &refusal):
		return &problem{http.StatusBadRequest, "url_refused", "The endpoint is refused", refusal.Error()}
	case errors.As(err, &tooLarge):
		return &problem{http.StatusRequestEntityTooLarge, "too_large", "The form is too large", "Select less at a time, or write less."}
	case errors.Is(err, delivery.ErrNotFound), errors.Is(err, keys.ErrNotFound):
		return errNoPage
	case errors.Is(err, keys.ErrInvalid):
		return &problem{http.StatusBadRequest, "invalid", "That cannot be", strings.TrimPrefix(err.Error(), keys.ErrInvalid.Error()+": ")}
	case errors.Is(err, delivery.ErrNotDead):
		return &problem{http.StatusConflict, "not_dead", "Not a dead letter", "Only a dead letter can be retried: this one waits, is in flight, or is settled otherwise. Perhaps somebody else was quicker."}
	case errors.Is(err, delivery.ErrInFlight):
		return &problem{http.StatusConflict, "in_flight", "In flight", "The delivery is being sent at this moment. Wait until it is settled."}
	case errors.Is(err, delivery.ErrNotHeld):
		return &problem{http.StatusConflict, "not_held", "Holds no stream", "Only a dead letter that holds its stream can be released. Perhaps somebody else was quicker."}
	case errors.Is(err, delivery.ErrReplayConflict):
		return &problem{http.StatusConflict, "replay_conflict", "Another replay", "The form was changed after it was sent. Begin the replay anew."}
	case errors.Is(err, delivery.ErrChanged):
		return &problem{http.StatusConflict, "changed_meanwhile", "Changed meanwhile", "Somebody else changed it at the same moment. Look at it again."}
	case errors.Is(err, delivery.ErrTooBroad), errors.As(err, &pg) && pg.Code == "57014":
		return &problem{http.StatusUnprocessableEntity, "too_broad", "Too much to read", "The filter leaves so little of a long log that the page would take too long. Choose an endpoint, an asset or a time."}
	case errors.Is(err, context.DeadlineExceeded), pgerr.Away(err):
		return &problem{http.StatusServiceUnavailable, "unavailable", "The database does not answer", "Reload in a moment. The server's log tells more."}
	}
	return &problem{http.StatusInternalServerError, "internal", "Something went wrong here", "The server's log tells more."}
}

// refuse answers with a problem. v is nil, or without a caller, where nobody is signed in.
func (c *Console) refuse(w http.ResponseWriter, r *http.Request, v *visit, err error) {
	if errors.Is(err, errSignedOut) {
		next := ""
		if r.Method == http.MethodGet {
			next = "?" + url.Values{"next": {r.URL.RequestURI()}}.Encode()
		}
		http.Redirect(w, r, Root+"sign-in"+next, http.StatusSeeOther)
		return
	}
	p := problemOf(err)
	if p.status >= 500 {
		c.Logger.Error("a page failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	f := c.frame(r, v)
	f.Title, f.Body = p.title, p.detail
	c.write(w, p.status, "problem", f)
}
