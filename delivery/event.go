package delivery

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/postlane-go/postlane/internal/traceparent"
)

const (
	// MaxPayload is the largest payload, in bytes. Standard Webhooks advises
	// less than 20 kB; what is large is better fetched by the receiver.
	MaxPayload = 4 << 20
	// MaxAsset is the longest asset, in bytes. An asset is part of an index
	// key, which PostgreSQL limits to a third of a page.
	MaxAsset = 512
	// MaxID is the longest event id, in bytes.
	MaxID = 128
	// MaxTenant is the longest tenant, in bytes.
	MaxTenant = 128
	// MaxEventType is the longest event type, in bytes, and MaxEventTypeParts
	// the most parts between its full stops: the fan-out looks for one pattern
	// a part.
	MaxEventType      = 128
	MaxEventTypeParts = 16
	// MaxDelay is how far ahead an event's DeliverAfter may be: 365 days.
	MaxDelay = 365 * 24 * time.Hour

	// DefaultContentType is that of an Event which names none.
	DefaultContentType = "application/json"
)

// Event is what happened. It is written once, and sent to every subscription of
// its tenant whose event types match.
type Event struct {
	// ID is the event's identity for its tenant and becomes the webhook-id
	// header: letters, digits, "-" and "_". The same id again is the same event,
	// and is stored and sent once.
	// Default: a new one ("evt_" and a UUIDv7).
	ID string

	// Tenant is whose event it is; only subscriptions of that tenant match.
	// Required: 1 to MaxTenant bytes.
	Tenant string

	// Type is the kind of event, parts of letters, digits, "-" and "_" with full
	// stops between, such as "asset.version_created". Required. Those that begin with
	// ReservedPrefix are Postlane's own.
	Type string

	// Asset is the entity that the event is about: events of one asset reach
	// each endpoint in order. Without one ("") the event joins the one stream
	// of events that have none. Any text without NUL, up to MaxAsset bytes.
	Asset string

	// ContentType is the payload's. Default: DefaultContentType.
	ContentType string

	// Payload is stored and sent byte for byte, and signed as such. Up to
	// MaxPayload bytes; it may be empty, though some libraries cannot verify
	// an empty body: prefer "{}".
	Payload []byte

	// Traceparent is the W3C trace context that the event comes from, to which its
	// attempts are linked ("00-", trace, "-", span, "-", flags). It is no part of
	// what tells two events of one id apart.
	// Default: that of the span in the context of Enqueue; none where there is no
	// valid one.
	Traceparent string

	// DeliverAfter is the time before which no request for the event starts, by the
	// database's clock, to the microsecond. Like a retry that waits, it holds its
	// stream: what is enqueued later for the same asset is sent after it. To delay
	// one event alone, give it an asset of its own. Subscriptions match when it is
	// enqueued. It is no part of what tells two events of one id apart: the first
	// one's counts.
	// Default: the zero time, at once, as for a time that is past. At most
	// MaxDelay ahead of this machine's clock.
	DeliverAfter time.Time
}

// newEventID returns an id that no other event has, and that sorts by time, which
// keeps the newest events together in the index.
func newEventID() string {
	return "evt_" + uuid.Must(uuid.NewV7()).String()
}

// payload returns the bytes that are stored: nil would be NULL.
func (e *Event) payload() []byte {
	if e.Payload == nil {
		return []byte{}
	}
	return e.Payload
}

func (e *Event) check(index int) error {
	bad := func(field, format string, args ...any) error {
		return &InvalidError{Index: index, Field: field, Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case len(e.ID) > MaxID:
		return bad("ID", "is longer than %d bytes", MaxID)
	case e.ID != "" && !isToken(e.ID):
		return bad("ID", "%q has characters that a webhook-id cannot carry; use letters, digits, - and _", e.ID)
	case e.Tenant == "":
		return bad("Tenant", "is empty; say whose event it is")
	case len(e.Tenant) > MaxTenant:
		return bad("Tenant", "is longer than %d bytes", MaxTenant)
	case !isText(e.Tenant):
		return bad("Tenant", "is not UTF-8 without NUL")
	case len(e.Asset) > MaxAsset:
		return bad("Asset", "is longer than %d bytes", MaxAsset)
	case !isText(e.Asset):
		return bad("Asset", "is not UTF-8 without NUL")
	case len(e.Payload) > MaxPayload:
		return bad("Payload", "has %d bytes, more than %d; send a reference to it", len(e.Payload), MaxPayload)
	case !isHeaderValue(e.ContentType):
		return bad("ContentType", "has characters that a header cannot carry")
	}
	if problem := eventTypeProblem(e.Type); problem != "" {
		return bad("Type", "%s", problem)
	}
	if strings.HasPrefix(e.Type, ReservedPrefix) {
		return bad("Type", "%q begins with %s, which is kept for Postlane's own events; choose another name", e.Type, ReservedPrefix)
	}
	if _, ok := traceparent.Parse(e.Traceparent); e.Traceparent != "" && !ok {
		return bad("Traceparent", "is not a W3C trace context, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	}
	if e.DeliverAfter.IsZero() {
		return nil
	}
	if e.DeliverAfter.Unix() < 0 {
		return bad("DeliverAfter", "is before 1970; give a time, or none for now")
	}
	if time.Until(e.DeliverAfter) > MaxDelay {
		return bad("DeliverAfter", "is more than 365 days ahead; keep it yourself until then")
	}
	return nil
}

// eventTypeProblem says what is wrong with an event type; "" if nothing.
func eventTypeProblem(t string) string {
	if t == "" {
		return "is empty; name the kind of event, such as invoice.paid"
	}
	if len(t) > MaxEventType {
		return fmt.Sprintf("is longer than %d bytes", MaxEventType)
	}
	parts := 0
	for part := range strings.SplitSeq(t, ".") {
		if parts++; part == "" || !isToken(part) {
			return fmt.Sprintf("%q is not parts of letters, digits, - and _ with full stops between, such as invoice.paid", t)
		}
	}
	if parts > MaxEventTypeParts {
		return fmt.Sprintf("has more than %d parts", MaxEventTypeParts)
	}
	return ""
}

// patternProblem says what is wrong with a pattern of event types; "" if nothing.
func patternProblem(p string) string {
	if p == "*" {
		return ""
	}
	if prefix, ok := strings.CutSuffix(p, ".*"); ok {
		p = prefix
	}
	if eventTypeProblem(p) != "" {
		return fmt.Sprintf("%q is neither an event type (invoice.paid) nor a prefix of them (invoice.*) nor *", p)
	}
	return ""
}

// patternsOf returns every pattern that matches an event type of an application:
// itself, each prefix with ".*", and "*".
func patternsOf(t string) []string {
	patterns := []string{t}
	for i := len(t) - 1; i > 0; i-- {
		if t[i] == '.' {
			patterns = append(patterns, t[:i]+".*")
		}
	}
	return append(patterns, "*")
}

func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

func isHeaderValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
