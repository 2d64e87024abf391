package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/eventschema"
	"github.com/postlane-go/postlane/internal/view"
)

type listEventTypes struct {
	Page
	Tenant string `query:"tenant" doc:"Whose they are; needed with an operator's key"`
}

// ByEventType is the path of what is an event type's.
type ByEventType struct {
	Name   string `path:"name" doc:"The event type" example:"invoice.paid"`
	Tenant string `query:"tenant" doc:"Whose it is; needed with an operator's key"`
}

type putEventType struct {
	ByEventType
	Body struct {
		Description string          `json:"description,omitempty" maxLength:"1000" doc:"For people; absent: none"`
		Schema      json.RawMessage `json:"schema,omitempty" doc:"The JSON Schema of payloads, draft 2020-12 unless $schema says another. A $ref leads within it: nothing is loaded. Absent or null: none"`
		Validate    bool            `json:"validate,omitempty" doc:"Refuse payloads of POST /v1/events that do not meet the schema; absent: false"`
		Deprecated  bool            `json:"deprecated,omitempty" doc:"No new subscriber should want it; absent: false"`
	}
}

func (a *api) eventTypeRoutes() {
	const base = "/v1/event-types"
	registerList(a, operation(http.MethodGet, base, "list-event-types", tagEventTypes, "List event types", "In the order of their names, without their schemas."), (*api).listEventTypes)
	register(a, operation(http.MethodGet, base+"/{name}", "get-event-type", tagEventTypes, "Get an event type", "With its schema."), a.getEventType)
	register(a, operation(http.MethodPut, base+"/{name}", "put-event-type", tagEventTypes, "Write an event type",
		fmt.Sprintf("A new one, or another version in place of the one of this name: what is absent is not kept. The schema is refused if it is none, and if validating by it could not be bounded: more than %d bytes, a $ref that leads out of it, $dynamicRef, branches without end. It counts for the next request that writes events.", delivery.MaxSchema)), a.putEventType)
	remove := operation(http.MethodDelete, base+"/{name}", "delete-event-type", tagEventTypes, "Delete an event type", "Events of the type stay, and more may come: they are not validated any more.")
	remove.DefaultStatus = http.StatusNoContent
	register(a, remove, a.deleteEventType)
}

func (a *api) listEventTypes(ctx context.Context, in *listEventTypes) (*answer[view.List[view.EventType]], error) {
	tenant, err := tenantOf(ctx, in.Tenant, "query.tenant")
	if err != nil {
		return nil, err
	}
	name := "event-types\x00" + tenant
	after, err := a.cursors.read(name, in.Cursor)
	if err != nil {
		return nil, err
	}
	list, err := a.Store.EventTypes(ctx, tenant, delivery.EventTypePage{After: after, Limit: in.Limit + 1})
	if err != nil {
		return nil, err
	}
	return listed(a, name, in.Limit, list, view.NewEventType, func(t *delivery.EventType) string { return t.Name }), nil
}

func (a *api) getEventType(ctx context.Context, in *ByEventType) (*answer[view.EventTypeWithSchema], error) {
	tenant, err := tenantOf(ctx, in.Tenant, "query.tenant")
	if err != nil {
		return nil, err
	}
	t, err := a.Store.EventType(ctx, tenant, in.Name)
	if err != nil {
		return nil, err
	}
	return &answer[view.EventTypeWithSchema]{view.NewEventTypeWithSchema(t)}, nil
}

func (a *api) putEventType(ctx context.Context, in *putEventType) (*answer[view.EventTypeWithSchema], error) {
	tenant, err := tenantOf(ctx, in.Tenant, "query.tenant")
	if err != nil {
		return nil, err
	}
	note(ctx).Tenant = tenant
	t := delivery.EventType{Tenant: tenant, Name: in.Name, Description: in.Body.Description, Validate: in.Body.Validate, Deprecated: in.Body.Deprecated}
	if schema := string(in.Body.Schema); schema != "null" {
		t.Schema = schema
	}
	if t.Validate {
		note(ctx).Detail = "validated"
	}
	if t.Schema != "" {
		if err := eventschema.Check([]byte(t.Schema)); err != nil {
			return nil, invalid.at("body.schema", "cannot be used: "+inOneLine(err))
		}
	}
	written, err := a.Store.PutEventType(ctx, t)
	if err != nil {
		return nil, err
	}
	return &answer[view.EventTypeWithSchema]{view.NewEventTypeWithSchema(written)}, nil
}

func (a *api) deleteEventType(ctx context.Context, in *ByEventType) (*struct{}, error) {
	tenant, err := tenantOf(ctx, in.Tenant, "query.tenant")
	if err != nil {
		return nil, err
	}
	note(ctx).Tenant = tenant
	return nil, a.Store.DeleteEventType(ctx, tenant, in.Name)
}

// validate refuses events whose payloads do not meet the schemas of their types.
func (a *api) validate(ctx context.Context, tenant string, events []delivery.Event) error {
	types := make([]string, len(events))
	for i := range events {
		types[i] = events[i].Type
	}
	schemas, err := a.schemas.Registry(ctx, tenant, types...)
	if unusable, ok := errors.AsType[*eventschema.SchemaError](err); ok {
		// The reason may be told: who writes events may read the schema.
		return schemaUnusable.problem(fmt.Sprintf("The schema of %s cannot be used: %s", unusable.Type, inOneLine(unusable.Err))).
			with("Retry-After", "60").because(fmt.Errorf("of tenant %q", unusable.Tenant))
	}
	if err != nil {
		return err
	}
	err = schemas.Validate(events...)
	refused, ok := errors.AsType[*eventschema.Error](err)
	if !ok {
		return err
	}
	p := payloadRefused.problem(fmt.Sprintf("The payload of events[%d] does not meet the schema of %s.", refused.Index, refused.Type))
	for _, problem := range refused.Problems {
		p.Errors = append(p.Errors, ProblemError{fmt.Sprintf("body.events[%d].payload", refused.Index), strings.TrimSpace(problem.At + " " + problem.Message)})
	}
	return p
}

// inOneLine is what is wrong with a schema.
func inOneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }
