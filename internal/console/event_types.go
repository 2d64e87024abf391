package console

import (
	"bytes"
	"encoding/json"

	"github.com/postlane-go/postlane/delivery"
)

type eventTypesView struct {
	Rows        []eventTypeRow
	First, Next string
	// Nobody says that an operator has chosen no tenant yet.
	Nobody bool
}

type eventTypeRow struct {
	*delivery.EventType
	Path string
}

// eventTypes lists the event types that a tenant describes.
func (v *visit) eventTypes() error {
	body := &eventTypesView{Nobody: v.tenant() == ""}
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
	List string
	// Schema is indented, for people.
	Schema string
}

// eventType shows an event type with its schema.
func (v *visit) eventType() error {
	t, err := v.Store.EventType(v.ctx, v.tenant(), clean(v.r.PathValue("name")))
	if err != nil {
		return err
	}
	body := &eventTypeView{EventType: t, List: v.path("event-types"), Schema: t.Schema}
	var indented bytes.Buffer
	if json.Indent(&indented, []byte(t.Schema), "", "  ") == nil {
		body.Schema = indented.String()
	}
	return v.page("eventtype", "event-types", t.Name, body)
}
