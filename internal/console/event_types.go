package console

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/postlane-go/postlane/delivery"
)

type eventTypesView struct {
	Rows        []eventTypeRow
	First, Next string
	// Nobody says that an operator has chosen no tenant yet.
	Nobody bool
	// New is the form of a new one.
	New string
}

type eventTypeRow struct {
	*delivery.EventType
	Path string
}

// eventTypes lists the event types that a tenant describes.
func (v *visit) eventTypes() error {
	body := &eventTypesView{Nobody: v.tenant() == "", New: v.path("new-event-type")}
	if body.Nobody {
		return v.page("eventtypes", "event-types", "Event types", body)
	}
	after := v.query("after")
	list, err := v.Store.EventTypes(v.ctx, v.tenant(), delivery.EventTypePage{After: after, Limit: rowsPerPage + 1})
	if err != nil {
		return err
	}
	if len(list) > rowsPerPage {
		list = list[:rowsPerPage]
		body.Next = v.path("event-types", "after", list[rowsPerPage-1].Name)
	}
	if after != "" {
		body.First = v.path("event-types")
	}
	for _, t := range list {
		body.Rows = append(body.Rows, eventTypeRow{t, v.path("event-types/" + t.Name)})
	}
	return v.page("eventtypes", "event-types", "Event types", body)
}

type eventTypeView struct {
	*delivery.EventType
	List, Editing, Deleting string
}

// eventType shows an event type with its schema.
func (v *visit) eventType() error {
	t, err := v.described()
	if err != nil {
		return err
	}
	t.Schema = readable(t.Schema)
	path := "event-types/" + t.Name
	return v.page("eventtype", "event-types", t.Name, &eventTypeView{t, v.path("event-types"), v.path(path + "/editing"), v.path(path + "/deleting")})
}

// described is the event type in the path, of the visitor's tenant or the one that an
// operator chose.
func (v *visit) described() (*delivery.EventType, error) {
	if v.entry != nil {
		v.entry.Tenant = v.tenant()
	}
	return v.Store.EventType(v.ctx, v.tenant(), clean(v.r.PathValue("name")))
}

// readable is a schema for people: in lines, unless that makes it too long to be written
// again.
func readable(schema string) string {
	var indented bytes.Buffer
	if strings.Contains(schema, "\n") || json.Indent(&indented, []byte(schema), "", "  ") != nil || indented.Len() > delivery.MaxSchema {
		return schema
	}
	return indented.String()
}

// deletingEventType tells what deleting would do, and asks.
func (v *visit) deletingEventType() error {
	t, err := v.described()
	if err != nil {
		return err
	}
	path := "event-types/" + t.Name
	return v.page("deletingtype", "event-types", "Delete an event type", &struct {
		*delivery.EventType
		List, Path, Delete string
	}{t, v.path("event-types"), v.path(path), v.path(path + "/delete")})
}

func (v *visit) deleteEventType() error {
	t, err := v.described()
	if err != nil {
		return err
	}
	if v.form("sure") != "yes" {
		return invalid("Tick the box that says you are sure.")
	}
	if err := v.Store.DeleteEventType(v.ctx, t.Tenant, t.Name); err != nil {
		return err
	}
	return v.see(v.path("event-types"), "Deleted. Events of the type stay, and more may come: they are not validated any more.")
}
