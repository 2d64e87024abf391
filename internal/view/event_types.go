package view

import (
	"encoding/json"
	"time"

	"github.com/postlane-go/postlane/delivery"
)

// EventType is delivery.EventType without its schema.
type EventType struct {
	Name        string    `json:"name" doc:"The type of events that it describes" example:"invoice.paid"`
	Description string    `json:"description" doc:"For people"`
	Validate    bool      `json:"validate" doc:"Whether POST /v1/events refuses payloads that do not meet the schema"`
	Deprecated  bool      `json:"deprecated" doc:"No new subscriber should want it; events are written as before"`
	UpdatedAt   time.Time `json:"updated_at" doc:"When it was written; no two versions have the same time"`
}

// EventTypeWithSchema is delivery.EventType.
type EventTypeWithSchema struct {
	EventType
	Schema json.RawMessage `json:"schema" doc:"The JSON Schema of payloads; null: none. Text that is not JSON, if somebody stored that by SQL, is a string"`
}

// NewEventType returns the view of an event type without its schema.
func NewEventType(t *delivery.EventType) EventType {
	return EventType{Name: t.Name, Description: t.Description, Validate: t.Validate, Deprecated: t.Deprecated, UpdatedAt: t.UpdatedAt}
}

// NewEventTypeWithSchema returns the view of an event type.
func NewEventTypeWithSchema(t *delivery.EventType) EventTypeWithSchema {
	v := EventTypeWithSchema{EventType: NewEventType(t)}
	switch {
	case t.Schema == "":
	case json.Valid([]byte(t.Schema)):
		v.Schema = json.RawMessage(t.Schema)
	default: // was written past everything that looks at it
		v.Schema, _ = json.Marshal(t.Schema) // a string never fails
	}
	return v
}
