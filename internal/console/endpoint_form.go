package console

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/view"
)

// endpointForm is the form of an endpoint's settings, as it was typed.
type endpointForm struct {
	// Sub is the endpoint that is changed; nil for a new one.
	Sub *delivery.Subscription
	// Problem says what cannot be; "" on a form that was not sent yet.
	Problem string

	Tenant, URL, Description, EventTypes, OnDead string
	MaxAttempts, MaxInFlight, DisableAfter       string
	RateLimit                                    string
	Headers, Conditions                          string
	V1a, Thin, DropHeaders                       bool
}

func (v *visit) newEndpoint() error {
	return v.page("endpointform", "endpoints", "New endpoint", &endpointForm{
		Tenant: v.tenant(), EventTypes: "*", OnDead: string(delivery.Continue), MaxAttempts: "8", DisableAfter: "20",
	})
}

func (v *visit) editingEndpoint() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	f := &endpointForm{
		Sub: sub, Tenant: sub.Tenant, URL: sub.URL, Description: deref(sub.Description), EventTypes: strings.Join(sub.EventTypes, "\n"),
		OnDead: string(sub.OnDead), MaxAttempts: strconv.Itoa(sub.MaxAttempts), V1a: sub.V1a, Thin: sub.Thin,
		RateLimit: sub.RateLimit.String(),
	}
	for _, c := range sub.Conditions {
		f.Conditions += c.String() + "\n"
	}
	if sub.MaxInFlight > 0 {
		f.MaxInFlight = strconv.Itoa(sub.MaxInFlight)
	}
	if sub.DisableAfter > 0 {
		f.DisableAfter = strconv.Itoa(sub.DisableAfter)
	}
	return v.page("endpointform", "endpoints", "Change an endpoint", f)
}

// typed reads the form.
func (v *visit) typed() *endpointForm {
	return &endpointForm{
		Tenant: v.form("for"), URL: v.text("url"), Description: v.text("description"), EventTypes: v.text("event_types"), OnDead: v.form("on_dead"),
		MaxAttempts: v.form("max_attempts"), MaxInFlight: v.form("max_in_flight"), DisableAfter: v.form("disable_after"), Headers: v.text("headers"), Conditions: v.text("conditions"),
		RateLimit: v.form("rate_limit"), V1a: v.form("v1a") != "", Thin: v.form("thin") != "", DropHeaders: v.form("drop_headers") != "",
	}
}

// words are what was typed between commas and spaces.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' })
}

// apply writes what was typed into settings, and says what of it is none.
func (f *endpointForm) apply(s *delivery.Settings) error {
	s.URL, s.OnDead, s.V1a, s.Thin = f.URL, delivery.OnDead(f.OnDead), f.V1a, f.Thin
	s.Description = nil
	if f.Description != "" {
		s.Description = &f.Description
	}
	s.EventTypes = words(f.EventTypes)
	if len(s.EventTypes) == 0 {
		return invalid("Say which event types it wants: * is all of them.")
	}
	s.Conditions = nil
	for line := range strings.Lines(f.Conditions) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		c, err := delivery.ParseCondition(line)
		if err != nil {
			return err
		}
		s.Conditions = append(s.Conditions, c)
	}
	for _, n := range []struct {
		text, name string
		least      int
		none       int // what an empty field means; least without one
		to         *int
	}{
		{f.MaxAttempts, "Dead after", 1, 0, &s.MaxAttempts},
		{f.MaxInFlight, "In flight at most", 1, 0, &s.MaxInFlight},
		{f.DisableAfter, "Disabled after", 1, delivery.Never, &s.DisableAfter},
	} {
		if n.text == "" {
			*n.to = n.none
			continue
		}
		var err error
		if *n.to, err = strconv.Atoi(n.text); err != nil || *n.to < n.least || *n.to > 1_000_000_000 {
			return invalid(fmt.Sprintf("%s: %q is not a number from %d up.", n.name, n.text, n.least))
		}
	}
	var err error
	if s.RateLimit, err = delivery.ParseRate(f.RateLimit); err != nil {
		return err
	}
	if f.DropHeaders {
		s.Headers = map[string]string{}
	}
	if f.Headers == "" {
		return nil
	}
	s.Headers = map[string]string{}
	for line := range strings.Lines(f.Headers) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, found := strings.Cut(line, ":")
		if !found {
			return invalid("Write each header in a line of its own, as Name: value.")
		}
		s.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return nil
}

// again answers with the form and what cannot be in it. Headers are typed again: their
// values may be credentials.
func (v *visit) again(f *endpointForm, title string, err error) error {
	p := problemOf(err)
	if p.status != http.StatusBadRequest {
		return err
	}
	f.Problem, f.Headers = p.detail, ""
	return v.retype(p, "endpointform", "endpoints", title, f)
}

// createEndpoint answers with the page of the new endpoint and its secret on it: nothing
// shows it again.
func (v *visit) createEndpoint() error {
	f := v.typed()
	if !v.operator() {
		f.Tenant = v.who.Tenant
	}
	if f.Tenant == "" {
		return v.again(f, "New endpoint", invalid("Say whose it is: choose a tenant."))
	}
	v.entry.Tenant = f.Tenant
	var settings delivery.Settings
	if err := f.apply(&settings); err != nil {
		return v.again(f, "New endpoint", err)
	}
	sub, secret, err := v.Store.CreateSubscription(v.ctx, f.Tenant, settings)
	if err != nil {
		return v.again(f, "New endpoint", err)
	}
	v.entry.Target = sub.ID.String()
	body, err := v.endpointView(sub)
	if err != nil {
		return err
	}
	body.New, body.Secret, body.Signing = true, secret.Reveal(), &view.SigningExplained
	return v.page("endpoint", "endpoints", sub.URL, body)
}

func (v *visit) updateEndpoint() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	f := v.typed()
	f.Sub, f.Tenant = sub, sub.Tenant
	v.note("sets url, description, event_types, conditions, on_dead, max_attempts, max_in_flight, rate_limit, disable_after, v1a, thin")
	if f.Headers != "" || f.DropHeaders {
		v.note(v.entry.Detail + ", headers")
	}
	_, err = v.Store.UpdateSubscription(v.ctx, sub.ID, f.apply)
	if errors.Is(err, delivery.ErrNotFound) {
		return err
	}
	if err != nil {
		return v.again(f, "Change an endpoint", err)
	}
	return v.see(endpointPath(sub.ID), "Changed. No request with the old settings starts any more.")
}
