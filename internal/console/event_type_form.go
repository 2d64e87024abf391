package console

import (
	"errors"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/eventschema"
)

// eventTypeForm is the form of an event type, as it was typed.
type eventTypeForm struct {
	// Version is the one that is changed, by its time; "" for a new event type.
	Version string
	// Problem says what cannot be, and At in which field, "" where it is none's; both ""
	// on a form that was not sent yet.
	Problem, At string

	Tenant, Name, Description, Schema string
	Validate, Deprecated              bool

	// To is where the form is sent, List and Back what was looked at before.
	To, List, Back string
}

func (v *visit) newEventType() error {
	f := &eventTypeForm{Tenant: v.tenant()}
	return v.page("eventtypeform", "event-types", f.title(), v.leading(f))
}

func (v *visit) editingEventType() error {
	t, err := v.described()
	if err != nil {
		return err
	}
	f := &eventTypeForm{
		Version: t.UpdatedAt.Format(time.RFC3339Nano), Tenant: t.Tenant, Name: t.Name, Description: t.Description, Schema: readable(t.Schema),
		Validate: t.Validate, Deprecated: t.Deprecated,
	}
	return v.page("eventtypeform", "event-types", f.title(), v.leading(f))
}

// Why says what cannot be in a field, or with "" in none of them; "" if nothing.
func (f *eventTypeForm) Why(field string) string {
	if f.At != field {
		return ""
	}
	return f.Problem
}

// Mark marks the field that holds what cannot be.
func (f *eventTypeForm) Mark(field string) template.HTMLAttr {
	if f.Why(field) == "" {
		return ""
	}
	return ` aria-invalid="true" aria-describedby="problem"`
}

func (f *eventTypeForm) title() string {
	if f.Version == "" {
		return "New event type"
	}
	return "Change an event type"
}

// leading adds where the form leads.
func (v *visit) leading(f *eventTypeForm) *eventTypeForm {
	f.List = v.path("event-types")
	f.To, f.Back = v.path("event-types/create"), f.List
	if f.Version != "" {
		f.Back = v.path("event-types/" + f.Name)
		f.To = v.path("event-types/" + f.Name + "/update")
	}
	return f
}

func (v *visit) createEventType() error {
	f := v.typedEventType()
	f.Tenant, f.Name = v.tenant(), v.text("name")
	if v.operator() {
		f.Tenant = v.form("for")
	}
	v.entry.Tenant, v.entry.Target = f.Tenant, short(100, f.Name)
	if f.Tenant == "" {
		return v.typeAgain(f, &delivery.InvalidError{Index: -1, Field: "Tenant", Problem: "is missing; say whose it is"})
	}
	return v.putEventType(f, time.Time{})
}

func (v *visit) updateEventType() error {
	t, err := v.described()
	if err != nil {
		return err
	}
	f := v.typedEventType()
	f.Tenant, f.Name, f.Version = t.Tenant, t.Name, v.form("version")
	version, err := time.Parse(time.RFC3339Nano, f.Version)
	if err != nil || version.IsZero() {
		return invalid("The form is damaged. Open it again.")
	}
	return v.putEventType(f, version)
}

// typedEventType reads what is the same in the forms of a new event type and of one that
// is changed.
func (v *visit) typedEventType() *eventTypeForm {
	return &eventTypeForm{
		Description: v.text("description"), Schema: v.text("schema"), Validate: v.form("validate") != "", Deprecated: v.form("deprecated") != "",
	}
}

// putEventType writes what was typed in place of the version that its writer saw.
func (v *visit) putEventType(f *eventTypeForm, version time.Time) error {
	if f.Validate {
		v.note("validated")
	}
	if f.Schema != "" {
		if err := eventschema.Check([]byte(f.Schema)); err != nil {
			return v.typeAgain(f, &delivery.InvalidError{Index: -1, Field: "Schema", Problem: "cannot be used: " + err.Error()})
		}
	}
	t, err := v.Store.ReplaceEventType(v.ctx, delivery.EventType{
		Tenant: f.Tenant, Name: f.Name, Description: f.Description, Schema: f.Schema, Validate: f.Validate, Deprecated: f.Deprecated,
	}, version)
	if err != nil {
		return v.typeAgain(f, err)
	}
	path := v.path("event-types/" + t.Name)
	if v.operator() {
		path = v.path("event-types/"+t.Name, "tenant", t.Tenant)
	}
	return v.see(path, "Written. It counts for the next request that writes events.")
}

// typeAgain answers with the form and what cannot be in it.
func (v *visit) typeAgain(f *eventTypeForm, err error) error {
	p := problemOf(err)
	value, wrong := errors.AsType[*delivery.InvalidError](err)
	switch {
	case wrong:
		f.At, f.Problem = strings.ToLower(value.Field), p.detail
		if f.At == "name" && f.Version != "" {
			f.At = "" // is not on the form
		}
	case p.status == http.StatusConflict && f.Version == "":
		f.At, f.Problem = "name", "Name is that of an event type which is described already. Change that one."
	case p.status == http.StatusConflict:
		f.Problem = "Somebody else changed it after this form was opened. Look at what it is now, and write into that."
	default:
		return err
	}
	return v.retype(p, "eventtypeform", "event-types", f.title(), v.leading(f))
}
