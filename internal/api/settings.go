package api

import (
	"strings"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/view"
)

// Settings are those of a subscription as a request gives them: what is absent stays as
// it is, or is the default in a new one.
type Settings struct {
	URL          Optional[string]            `json:"url,omitzero" nullable:"false" maxLength:"2048" doc:"The endpoint: https, at a public address" example:"https://example.com/hooks"`
	Description  Optional[string]            `json:"description,omitzero" doc:"For people; null: none"`
	EventTypes   Optional[[]string]          `json:"event_types,omitzero" minItems:"1" maxItems:"100" doc:"The types that it wants: exact (invoice.paid), by prefix (invoice.*) or all (*), which leaves out Postlane's own (postlane.*). Absent from a new one, or null: all. An empty list is refused"`
	Conditions   Optional[[]view.Condition]  `json:"conditions,omitzero" maxItems:"20" doc:"What the payload of an event has to meet, all of them; only payloads of JSON do. A new value replaces all; null: none"`
	OnDead       Optional[string]            `json:"on_dead,omitzero" enum:"continue,hold" doc:"Whether a dead letter lets its stream go on or holds it; null: continue"`
	MaxAttempts  Optional[int]               `json:"max_attempts,omitzero" minimum:"1" maximum:"1000" doc:"After how many failed attempts a delivery is dead; null: the default, 8"`
	MaxInFlight  Optional[int]               `json:"max_in_flight,omitzero" minimum:"1" maximum:"10000" doc:"Most requests open to the endpoint; null: the dispatcher's own limit"`
	RateLimit    Optional[string]            `json:"rate_limit,omitzero" pattern:"^[0-9]+/([0-9]+)?[smh]$" maxLength:"20" doc:"Most requests in a time, evenly spaced: 100/s, 10/m, 5000/h, 10/30s; retries count. null: no limit" example:"100/s"`
	DisableAfter Optional[int]               `json:"disable_after,omitzero" minimum:"1" maximum:"1000000000" doc:"Deliveries that die in a row before it is disabled; null: never. Absent from a new one: 20"`
	V1a          Optional[bool]              `json:"v1a,omitzero" nullable:"false" doc:"Sign with an Ed25519 key too (v1a), beside the secret (v1), for receivers that should verify without being able to sign; public_key is what they need"`
	Thin         Optional[bool]              `json:"thin,omitzero" nullable:"false" doc:"Send, in place of payloads, a small JSON that names the event and the path at which its payload can be fetched"`
	Headers      Optional[map[string]string] `json:"headers,omitzero" doc:"Sent with every request, beside those of the delivery, which they cannot replace. They are kept encrypted and only their names are shown; a new value replaces all; null: none"`
}

// apply writes what is there into s.
func (in *Settings) apply(s *delivery.Settings) error {
	if in.URL.Null {
		return invalid.at("body.url", "cannot be null; leave it out to keep it")
	}
	if in.V1a.Null {
		return invalid.at("body.v1a", "cannot be null; use true or false")
	}
	if in.Thin.Null {
		return invalid.at("body.thin", "cannot be null; use true or false")
	}
	if in.URL.Set {
		s.URL = in.URL.Value
	}
	if in.Description.Set {
		s.Description = nil
		if !in.Description.Null {
			s.Description = &in.Description.Value
		}
	}
	if in.EventTypes.Set {
		s.EventTypes = in.EventTypes.Value
	}
	if in.Conditions.Set {
		s.Conditions = nil
		for _, c := range in.Conditions.Value {
			s.Conditions = append(s.Conditions, c.Condition())
		}
	}
	if in.OnDead.Set {
		s.OnDead = delivery.OnDead(in.OnDead.Value)
	}
	if in.MaxAttempts.Set {
		s.MaxAttempts = in.MaxAttempts.Value
	}
	if in.MaxInFlight.Set {
		s.MaxInFlight = in.MaxInFlight.Value
	}
	if in.RateLimit.Set {
		var err error
		if s.RateLimit, err = delivery.ParseRate(in.RateLimit.Value); err != nil {
			return err
		}
	}
	if in.DisableAfter.Set {
		s.DisableAfter = in.DisableAfter.Value
		if in.DisableAfter.Null {
			s.DisableAfter = delivery.Never
		}
	}
	if in.V1a.Set {
		s.V1a = in.V1a.Value
	}
	if in.Thin.Set {
		s.Thin = in.Thin.Value
	}
	if in.Headers.Set {
		s.Headers = in.Headers.Value
		if s.Headers == nil {
			s.Headers = map[string]string{}
		}
	}
	return nil
}

// names lists what is there, for the record; no values, which may be secrets.
func (in *Settings) names() string {
	var names []string
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"url", in.URL.Set}, {"description", in.Description.Set}, {"event_types", in.EventTypes.Set}, {"conditions", in.Conditions.Set}, {"on_dead", in.OnDead.Set},
		{"max_attempts", in.MaxAttempts.Set}, {"max_in_flight", in.MaxInFlight.Set}, {"rate_limit", in.RateLimit.Set}, {"disable_after", in.DisableAfter.Set},
		{"v1a", in.V1a.Set}, {"thin", in.Thin.Set}, {"headers", in.Headers.Set},
	} {
		if field.set {
			names = append(names, field.name)
		}
	}
	if names == nil {
		return ""
	}
	return "sets " + strings.Join(names, ", ")
}
