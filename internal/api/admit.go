package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/keys"
)

// Names in huma.Operation.Metadata.
const (
	forOperators = "operators" // only they may
	often        = "often"     // its record is written once, afterwards
)

type callerKey struct{}
type entryKey struct{}

// caller is who makes the request.
func caller(ctx context.Context) *keys.Caller { return ctx.Value(callerKey{}).(*keys.Caller) }

// note is the record of the request, for the handler to say more. It may be written to
// even where none is kept.
func note(ctx context.Context) *audit.Entry {
	if e, ok := ctx.Value(entryKey{}).(*audit.Entry); ok {
		return e
	}
	return &audit.Entry{}
}

// admit stands before every operation: whose key is it, may it do this, is it within its
// rate; and after it, what came of it goes on record.
func (a *api) admit(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	refuse := func(p *Problem) { p.write(w) }
	who, p := a.authenticate(r)
	if p != nil {
		refuse(p)
		return
	}
	if wait := a.limits.take(who.ID); wait > 0 {
		refuse(tooMany.problem("").with("Retry-After", strconv.Itoa(int(wait/time.Second)+1)))
		return
	}
	op := ctx.Operation()
	ctx = huma.WithValue(ctx, callerKey{}, who)
	if op.Method == http.MethodGet {
		if op.Metadata[forOperators] != nil && !who.Operator() {
			refuse(operatorOnly.problem(operatorOnly.about))
			return
		}
		next(ctx)
		return
	}
	a.onRecord(ctx, r, op, who, func(ctx huma.Context, e *audit.Entry) {
		switch {
		case who.Scope != keys.Write:
			e.Status, e.Outcome = readOnly.status, readOnly.name
			refuse(readOnly.problem(readOnly.about))
		case op.Metadata[forOperators] != nil && !who.Operator():
			e.Status, e.Outcome = operatorOnly.status, operatorOnly.name
			refuse(operatorOnly.problem(operatorOnly.about))
		default:
			next(ctx)
			e.Status = ctx.Status()
			a.Replica.Wrote(context.WithoutCancel(ctx.Context()), who.ID)
		}
	})
}

// authenticate finds whose key a request carries.
func (a *api) authenticate(r *http.Request) (*keys.Caller, *Problem) {
	text := bearer(r)
	if text == "" {
		return nil, unauthorized.problem("Send a key as: Authorization: Bearer KEY.").with("WWW-Authenticate", `Bearer realm="postlane"`)
	}
	who, err := a.attempts.Find(r.Context(), r.RemoteAddr, text)
	many, limited := errors.AsType[*keys.TooManyError](err)
	switch {
	case limited:
		return nil, tooMany.problem("Too many wrong keys came from this address.").with("Retry-After", strconv.Itoa(int(many.Wait/time.Second)+1))
	case errors.Is(err, keys.ErrUnknown):
		return nil, unauthorized.problem("The key is unknown or revoked.").
			with("WWW-Authenticate", `Bearer realm="postlane", error="invalid_token"`)
	case err != nil:
		a.Logger.Error("a key could not be looked up", "error", err)
		return nil, unavailable.problem("").with("Retry-After", "1").because(err)
	}
	return who, nil
}

// bearer is the key that a request carries; "" if none.
func bearer(r *http.Request) string {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(text)
}

// onRecord runs a change between the two halves of its record. A change that cannot be
// recorded is not made; one that was made is recorded even if its client has gone.
func (a *api) onRecord(ctx huma.Context, r *http.Request, op *huma.Operation, who *keys.Caller, f func(huma.Context, *audit.Entry)) {
	e := &audit.Entry{Actor: who.ID, ActorName: who.Name, Tenant: who.Tenant, Action: op.OperationID, Target: audit.Target(r)}
	late := op.Metadata[often] != nil
	if !late {
		if err := a.audit.Begin(r.Context(), e); err != nil {
			a.Logger.Error("a change could not be recorded, and was not made", "error", err)
			_, w := humago.Unwrap(ctx)
			unavailable.problem("").with("Retry-After", "1").write(w)
			return
		}
	}
	f(huma.WithValue(ctx, entryKey{}, e), e)
	if e.Outcome == "" {
		e.Outcome = "ok"
		if e.Status >= 400 {
			e.Outcome = newProblem(nil, e.Status, "", nil).Code // refused before the handler was asked
		}
	}
	finish, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second)
	defer cancel()
	write := a.audit.End
	if late {
		write = a.audit.Record
	}
	if err := write(finish, e); err != nil {
		a.Logger.Error("what came of a change could not be recorded", "error", err, "action", e.Action, "target", e.Target, "outcome", e.Outcome)
	}
}
