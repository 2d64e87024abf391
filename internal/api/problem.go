package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/pgerr"
)

// Problem is the body of every answer that is not a success (RFC 9457).
type Problem struct {
	Type   string         `json:"type" format:"uri-reference" doc:"Where this kind of problem is explained; ends in the code"`
	Code   string         `json:"code" doc:"What went wrong, for programs: stable"`
	Title  string         `json:"title" doc:"What went wrong, for people; the same for every problem of the code"`
	Status int            `json:"status" doc:"The HTTP status"`
	Detail string         `json:"detail,omitempty" doc:"What is to be said about this one"`
	Rule   string         `json:"rule,omitempty" doc:"With url_refused: which rule refused the endpoint"`
	Errors []ProblemError `json:"errors,omitempty" doc:"What is wrong where, if it is several things or has a place"`

	header http.Header
	cause  error
}

// ProblemError is one thing that is wrong with a request.
type ProblemError struct {
	Location string `json:"location" doc:"Where: body.url, query.state"`
	Message  string `json:"message" doc:"What is wrong, and what would do"`
}

// Error is for logs: it may tell the cause, which an answer does not.
func (p *Problem) Error() string {
	text := p.Code + ": " + p.Detail
	if p.cause != nil {
		text += ": " + p.cause.Error()
	}
	return text
}

func (p *Problem) Unwrap() error           { return p.cause }
func (p *Problem) GetStatus() int          { return p.Status }
func (p *Problem) GetHeaders() http.Header { return p.header }

// ContentType makes answers with this body application/problem+json.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// code is a kind of problem.
type code struct {
	name   string
	status int
	title  string
	// about is for the page.
	about string
}

var (
	invalid          = code{"invalid", 400, "The request is not valid", "A field, parameter or header is unknown, missing or cannot be what it is; errors says which."}
	urlRefused       = code{"url_refused", 400, "The endpoint is refused", "The URL is not one that requests are sent to; rule says why."}
	payloadRefused   = code{"payload_refused", 400, "The payload does not meet its schema", "The event's type is described with validate set, and errors says which places of the payload do not meet which keywords of its schema. No event of the request was written."}
	badCursor        = code{"bad_cursor", 400, "The cursor is not valid", "A cursor is taken from next_cursor as it is and goes with the same list and the same filters."}
	unauthorized     = code{"unauthorized", 401, "A key is needed", "Send a key as: Authorization: Bearer KEY. The one that was sent, if any, is unknown or revoked."}
	readOnly         = code{"read_only_key", 403, "The key may only read", "The operation changes something, and the key's scope is read."}
	operatorOnly     = code{"operator_only", 403, "The operation is an operator's", "The key is a tenant's."}
	notFound         = code{"not_found", 404, "Not found", "There is no such thing, or none that this key may see."}
	methodNotAllowed = code{"method_not_allowed", 405, "The method is not allowed here", "The Allow header lists those that are."}
	timedOut         = code{"timeout", 408, "The request came too slowly", "Its body has to arrive in time."}
	notDead          = code{"not_dead", 409, "The delivery is not a dead letter", "Only a dead letter can be retried: this one waits, is in flight, or is settled otherwise."}
	inFlight         = code{"in_flight", 409, "The delivery is in flight", "It is being sent at this moment; wait until it is settled."}
	notHeld          = code{"not_held", 409, "The delivery does not hold its stream", "Only a dead letter that holds its stream can be released."}
	replayConflict   = code{"replay_conflict", 409, "The replay's id is taken", "A replay of this subscription has this id and another range. A new replay needs a new id."}
	changed          = code{"changed_meanwhile", 409, "The subscription was changed meanwhile", "Read it again and decide again."}
	eventConflict    = code{"event_conflict", 409, "The event id is taken", "An event with this id was written before with another content. A new event needs a new id."}
	eventBusy        = code{"event_busy", 409, "The event id is being written", "Another request is writing an event with this id; send this one again."}
	tooLarge         = code{"too_large", 413, "The request is too large", "The detail names the limit."}
	unsupported      = code{"unsupported_media_type", 415, "The content type is not supported", "Send application/json."}
	tooBroad         = code{"too_broad", 422, "Too much would have to be read", "The filter leaves so little of a long log that an answer would take too long. Narrow it by asset or time."}
	tooMany          = code{"too_many_requests", 429, "Too many requests", "Wait for as many seconds as Retry-After says."}
	internal         = code{"internal", 500, "Something went wrong here", "The server's log tells more."}
	schemaUnusable   = code{"schema_unusable", 503, "The event type's schema cannot be used", "The event's type is described with validate set and a schema that was stored without a check, and is none; detail says why. No event of the request was written. Send it again when the event type is written anew, or validate is unset."}
	unavailable      = code{"unavailable", 503, "The database does not answer", "Try again."}
)

// codes are all kinds, for the page and for statuses that others choose.
var codes = []code{
	invalid, urlRefused, payloadRefused, badCursor, unauthorized, readOnly, operatorOnly, notFound, methodNotAllowed, timedOut, notDead, inFlight, notHeld,
	replayConflict, changed, eventConflict, eventBusy, tooLarge, unsupported, tooBroad, tooMany, internal, unavailable, schemaUnusable,
}

func (c code) problem(detail string) *Problem {
	return &Problem{Type: "/docs#" + c.name, Code: c.name, Title: c.title, Status: c.status, Detail: detail}
}

// at is a problem with one place.
func (c code) at(location, message string) *Problem {
	p := c.problem("")
	p.Errors = []ProblemError{{location, message}}
	p.Detail = location + " " + message
	return p
}

func (p *Problem) because(err error) *Problem {
	p.cause = err
	return p
}

func (p *Problem) with(header, value string) *Problem {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(header, value)
	return p
}

// write answers with a problem, outside of what huma answers.
func (p *Problem) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), p.header)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client is gone if this fails
}

// huma's own refusals become problems like ours. The functions are the package's: there
// is one API in a process, and no other way to choose the type of its errors.
func init() {
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return newProblem(nil, status, message, errs)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, message string, errs ...error) huma.StatusError {
		return newProblem(ctx, status, message, errs)
	}
	huma.DefaultArrayNullable = false // lists are [], never null
	huma.ValidateStrictCasing = true  // "URL" is not "url"
}

func newProblem(ctx huma.Context, status int, message string, errs []error) *Problem {
	kind := internal
	switch status {
	case http.StatusUnprocessableEntity, http.StatusBadRequest:
		kind = invalid
	default:
		for _, c := range codes {
			if c.status == status {
				kind = c
				break
			}
		}
	}
	p := kind.problem(message)
	if kind == internal {
		p.Detail = ""
	}
	if kind == tooLarge && ctx != nil && ctx.Operation() != nil {
		p.Detail = fmt.Sprintf("The body is larger than %d bytes, which is the limit here.", ctx.Operation().MaxBodyBytes)
	}
	for _, err := range errs {
		var detail *huma.ErrorDetail
		if !errors.As(err, &detail) {
			p.cause = errors.Join(p.cause, err)
			continue
		}
		e := ProblemError{Location: detail.Location, Message: detail.Message}
		// Only what stands in a URL is repeated: a body may hold a secret.
		if value, ok := detail.Value.(string); ok && strings.HasPrefix(e.Location, "query.") && len(value) <= 200 {
			e.Message += ", not " + strconv.Quote(value)
		}
		p.Errors = append(p.Errors, e)
	}
	if len(p.Errors) > 0 {
		p.Detail = p.Errors[0].Location + ": " + p.Errors[0].Message
	}
	return p
}

// missing is the answer for everything that is not there, or not this caller's. It holds
// nothing of the request, so that the two cannot be told apart.
func missing() *Problem { return notFound.problem(notFound.about) }

// failure is the answer to an error of the data layer.
func failure(err error) error {
	var invalidValue *delivery.InvalidError
	var refusal *guard.Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*Problem)):
		return err
	case errors.As(err, &refusal):
		// The rule may be told: it judges what the caller wrote, and no name was looked up.
		p := urlRefused.at("body.url", refusal.Error())
		p.Rule = refusal.Rule
		return p
	case errors.As(err, &invalidValue):
		return invalid.at(location(invalidValue), invalidValue.Problem)
	case errors.Is(err, delivery.ErrNotFound), errors.Is(err, keys.ErrNotFound):
		return missing()
	case errors.Is(err, keys.ErrInvalid):
		return invalid.problem(strings.TrimPrefix(err.Error(), keys.ErrInvalid.Error()+": "))
	case errors.Is(err, delivery.ErrNotDead):
		return notDead.problem(notDead.about)
	case errors.Is(err, delivery.ErrInFlight):
		return inFlight.problem(inFlight.about)
	case errors.Is(err, delivery.ErrNotHeld):
		return notHeld.problem(notHeld.about)
	case errors.Is(err, delivery.ErrReplayConflict):
		return replayConflict.problem(replayConflict.about)
	case errors.Is(err, delivery.ErrChanged):
		return changed.problem(changed.about)
	case errors.Is(err, delivery.ErrTooBroad):
		return tooBroad.problem(tooBroad.about)
	case errors.Is(err, context.DeadlineExceeded):
		return unavailable.problem("It took too long.").with("Retry-After", "1").because(err)
	case pgerr.NotText(err):
		return invalid.problem("A value is not UTF-8, or has NUL in it.").because(err)
	case pgerr.Away(err):
		return unavailable.problem("").with("Retry-After", "1").because(err)
	}
	return internal.problem("").because(err)
}

// fields are the names of the data layer's fields in requests.
var fields = map[string]string{
	"URL": "body.url", "EventTypes": "body.event_types", "OnDead": "body.on_dead", "MaxAttempts": "body.max_attempts",
	"MaxInFlight": "body.max_in_flight", "RateLimit": "body.rate_limit", "DisableAfter": "body.disable_after", "Description": "body.description", "Headers": "body.headers",
	"Conditions": "body.conditions", "Name": "path.name", "Schema": "body.schema", "Validate": "body.validate",
	"Tenant": "body.tenant", "overlap": "body.overlap_seconds", "reason": "body.reason", "state": "query.state",
	"ID": "body.id", "Since": "body.since", "Until": "body.until", "Asset": "body.asset",
}

func location(e *delivery.InvalidError) string {
	if e.Index >= 0 {
		return fmt.Sprintf("body.events[%d].%s", e.Index, eventFields[e.Field])
	}
	if name, ok := fields[e.Field]; ok {
		return name
	}
	return strings.ToLower(e.Field)
}

var eventFields = map[string]string{
	"ID": "id", "Tenant": "tenant", "Type": "type", "Asset": "asset", "ContentType": "content_type", "Payload": "payload",
	"DeliverAfter": "deliver_after",
}
