package delivery

import (
	"fmt"
	"time"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// State is that of a subscription.
type State string

const (
	// Active: events are delivered.
	Active State = "active"
	// Paused: by a person. What is pending stays, in order, and so does what is
	// enqueued meanwhile.
	Paused State = "paused"
	// Disabled: by the system, with a reason. The same holds for what is pending.
	Disabled State = "disabled"
)

// OnDead says what a dead letter does to its stream.
type OnDead string

const (
	// Continue: the stream goes on behind a dead letter.
	Continue OnDead = "continue"
	// Hold: the stream stops at a dead letter until an operator revives,
	// discards or releases it.
	Hold OnDead = "hold"
)

// Settings are what a subscription's owner chooses.
type Settings struct {
	// URL is the endpoint. It must pass the store's guard.
	URL string

	// Description is for people; nil for none.
	Description *string

	// EventTypes are the types that it wants: exact (invoice.paid), by prefix
	// (invoice.*) or all (*).
	// Default: nil, all. An empty list that is not nil is refused: it would
	// match nothing.
	EventTypes []string

	// Conditions are what an event's payload has to meet, all of them. A payload that
	// is not JSON (application/json, or +json), or that PostgreSQL's jsonb cannot
	// hold, meets none. They are judged when an event is enqueued. At most 20.
	// Default: none.
	Conditions []Condition

	// OnDead says whether a dead letter holds its stream. Default: Continue.
	OnDead OnDead

	// MaxAttempts is after how many failed attempts a delivery is dead.
	// Default: 8. At most 1,000.
	MaxAttempts int

	// MaxInFlight limits the requests that are open to the endpoint at a time.
	// Default: 0, the dispatcher's limit alone. At most 10,000.
	MaxInFlight int

	// RateLimit limits how many requests are sent to the endpoint in a time, of all
	// dispatchers together; retries count. Default: none.
	RateLimit Rate

	// DisableAfter is how many deliveries in a row may die before the
	// subscription is disabled. Default: 0 means 20; Never turns it off.
	DisableAfter int

	// V1a signs with an Ed25519 key too (v1a), beside the secret (v1), for
	// receivers that should be able to verify without being able to sign.
	// Subscription.PublicKey is what they need. Default: v1 alone.
	V1a bool

	// Thin sends, in place of an event's payload, a small JSON that names the event (see
	// Thin, the type) and where the payload can be fetched with a key of the tenant. Headers,
	// signatures and order are the same. Each attempt reads the event once more.
	// Default: false, the payload is sent.
	Thin bool

	// Headers are sent with every request, beside those that it has anyway and
	// which cannot be replaced. A value may be a credential: they are encrypted
	// at rest and nothing returns them; Subscription.HeaderNames are their names.
	// In an update nil leaves them as they are. Default: none.
	Headers map[string]string
}

// Never as Settings.DisableAfter: failures do not disable the subscription.
const Never = -1

const (
	defaultMaxAttempts  = 8
	defaultDisableAfter = 20
	maxEventTypes       = 100
)

func (s *Settings) check() error {
	bad := func(field, format string, args ...any) error {
		return &InvalidError{Index: -1, Field: field, Problem: fmt.Sprintf(format, args...)}
	}
	if s.EventTypes != nil && len(s.EventTypes) == 0 {
		return bad("EventTypes", "is an empty list, which matches nothing; leave it out for all types")
	}
	if len(s.EventTypes) > maxEventTypes {
		return bad("EventTypes", "has more than %d entries; use prefixes such as invoice.*", maxEventTypes)
	}
	for _, t := range s.EventTypes {
		if problem := patternProblem(t); problem != "" {
			return bad("EventTypes", "%s", problem)
		}
	}
	switch {
	case s.OnDead != "" && s.OnDead != Continue && s.OnDead != Hold:
		return bad("OnDead", "is %q; use %q or %q", s.OnDead, Continue, Hold)
	case s.MaxAttempts < 0 || s.MaxAttempts > 1000:
		return bad("MaxAttempts", "is %d; use 1 to 1000, or 0 for the default", s.MaxAttempts)
	case s.MaxInFlight < 0 || s.MaxInFlight > 10000:
		return bad("MaxInFlight", "is %d; use 1 to 10000, or 0 for the dispatcher's limit", s.MaxInFlight)
	case s.DisableAfter < Never:
		return bad("DisableAfter", "is %d; use 1 or more, 0 for the default, or -1 for never", s.DisableAfter)
	case s.Description != nil && (!isText(*s.Description) || len(*s.Description) > 1000):
		return bad("Description", "is not UTF-8 without NUL of at most 1000 bytes")
	}
	if problem := s.RateLimit.problem(); problem != "" {
		return bad("RateLimit", "%s", problem)
	}
	if err := s.checkConditions(); err != nil {
		return err
	}
	return s.checkHeaders()
}

// Subscription is an endpoint with its settings and state. It does not hold the
// secret: only creating and rotating return one.
type Subscription struct {
	ID     SubscriptionID
	Tenant string
	Settings

	State State
	// Since is when it entered State; Reason why, where somebody or something
	// gave one.
	Since  time.Time
	Reason string

	// PublicKey ("whpk_") verifies v1a signatures; "" where there are none.
	PublicKey string
	// HeaderNames are those of Settings.Headers, which is always nil here.
	HeaderNames []string

	// Failures is how many deliveries in a row have died.
	Failures int
	// Breaker is open while the endpoint is not there, else nil. Changes return none.
	Breaker *Breaker

	Created, Updated time.Time
	// Revision rises with every change of settings, state or secret.
	Revision int64
}

func newSubscription(r *dbgen.PostlaneSubscriptions) *Subscription {
	s := &Subscription{
		ID:     SubscriptionID(r.ID),
		Tenant: r.Tenant,
		Settings: Settings{
			URL: r.Url, Description: r.Description, EventTypes: r.EventTypes, OnDead: OnDead(r.OnDead),
			MaxAttempts: int(r.MaxAttempts), DisableAfter: int(r.DisableAfter), V1a: r.PublicKey != nil,
			RateLimit:  rateOf(r),
			Conditions: conditionsOf(r.Conditions), Thin: r.Thin,
		},
		HeaderNames: r.HeaderNames,
		State:       State(r.State), Since: r.StateSince, Failures: int(r.FailureCount),
		Created: r.CreatedAt, Updated: r.UpdatedAt, Revision: r.Revision,
	}
	if r.MaxInFlight != nil {
		s.MaxInFlight = int(*r.MaxInFlight)
	}
	if r.StateReason != nil {
		s.Reason = *r.StateReason
	}
	if r.PublicKey != nil {
		s.PublicKey = *r.PublicKey
	}
	if s.DisableAfter == 0 {
		s.DisableAfter = Never
	}
	return s
}
