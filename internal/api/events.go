package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/view"
)

// busyTries is how often a request is tried whose ids another one is writing: that takes
// it half a second each time.
const busyTries = 4

// NewEvent is what happened, as a producer tells it.
type NewEvent struct {
	ID            string          `json:"id,omitempty" maxLength:"128" doc:"Its identity for its tenant, and the webhook-id: letters, digits, - and _. The same id again is the same event, stored and sent once. Absent: a new one"`
	Type          string          `json:"type" doc:"Parts of letters, digits, - and _ with full stops between" example:"invoice.paid"`
	Asset         string          `json:"asset,omitempty" doc:"The entity that it is about, whose events reach each endpoint in order. Absent: it joins the one stream of events without"`
	Payload       json.RawMessage `json:"payload,omitempty" doc:"Any JSON value: stored, signed and sent byte for byte as it stands here"`
	PayloadBase64 *string         `json:"payload_base64,omitempty" doc:"Any bytes, in standard base64, in place of payload"`
	ContentType   string          `json:"content_type,omitempty" doc:"The payload's; application/json if absent"`
	DeliverAfter  *time.Time      `json:"deliver_after,omitempty" doc:"No request for it starts before this time, at most 365 days ahead. It holds its stream: later events of its asset are sent after it. Absent: at once"`
}

type sendEvents struct {
	Body struct {
		Tenant string     `json:"tenant,omitempty" doc:"Whose events they are; needed with an operator's key"`
		Events []NewEvent `json:"events" minItems:"1" maxItems:"1000" doc:"In the order in which streams are to receive them; all are written or none"`
	}
}

type sentEvents struct {
	Status int
	Body   struct {
		Data []view.Enqueued `json:"data" doc:"Parallel to the events of the request"`
	}
}

type getEvent struct {
	EventID string `path:"event_id" doc:"The event" example:"evt_019f6c1e-7d3b-7000-8000-4a5b6c7d8e9f"`
	Tenant  string `query:"tenant" doc:"Whose it is; needed with an operator's key"`
}

func (a *api) eventRoutes() {
	send := operation(http.MethodPost, "/v1/events", "send-events", tagEvents, "Write events",
		fmt.Sprintf("Each goes to every subscription that it matches. Safe to repeat where the events have ids: what was written before is written once. When this answers the events are committed, and dispatchers are woken. Events that an application writes in a transaction of its own are seen when that commits, and not before: one that is left open delays its events, and nothing of anybody else. Payloads of event types with validate set have to meet their schemas; where a stored schema cannot be used, the answer is schema_unusable, which is worth repeating later. The answer is 201 if anything was new and 200 if nothing was. At most %d bytes a request and %d bytes a payload.", maxEventsBody, delivery.MaxPayload))
	send.DefaultStatus = http.StatusCreated
	send.MaxBodyBytes = maxEventsBody
	send.Metadata[often] = true
	register(a, send, a.sendEvents)
	responses := a.document.OpenAPI().Paths[send.Path].Post.Responses
	repeated := *responses["201"]
	repeated.Description = "Nothing was new"
	responses["200"] = &repeated
	content := operation(http.MethodGet, "/v1/events/{event_id}/payload", "get-event-payload", tagEvents, "Get an event's payload",
		"Its exact bytes, with its content type: what subscriptions that are thin are told the path of.")
	content.Responses = map[string]*huma.Response{"200": {
		Description: "OK", Content: map[string]*huma.MediaType{"*/*": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}},
	}}
	register(a, content, a.getEventPayload)
	register(a, operation(http.MethodGet, "/v1/events/{event_id}", "get-event", tagEvents, "Get an event", "Without its payload."), a.getEvent)
}

func (a *api) sendEvents(ctx context.Context, in *sendEvents) (*sentEvents, error) {
	tenant, err := tenantOf(ctx, in.Body.Tenant, "body.tenant")
	if err != nil {
		return nil, err
	}
	note(ctx).Tenant = tenant
	note(ctx).Detail = fmt.Sprintf("%d events", len(in.Body.Events))
	events := make([]delivery.Event, len(in.Body.Events))
	for i := range in.Body.Events {
		if events[i], err = in.Body.Events[i].event(i, tenant); err != nil {
			return nil, err
		}
	}
	if err := a.validate(ctx, tenant, events); err != nil {
		return nil, err
	}
	enqueued, err := a.enqueue(ctx, events)
	if err != nil {
		return nil, err
	}
	out := &sentEvents{Status: http.StatusOK}
	out.Body.Data = make([]view.Enqueued, len(enqueued))
	for i, e := range enqueued {
		out.Body.Data[i] = view.NewEnqueued(e)
		if !e.Duplicate {
			out.Status = http.StatusCreated
		}
	}
	return out, nil
}

// enqueue writes events in a transaction of their own.
func (a *api) enqueue(ctx context.Context, events []delivery.Event) (enqueued []delivery.Enqueued, err error) {
	for range busyTries {
		err = pgx.BeginTxFunc(ctx, a.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
			enqueued, err = delivery.Enqueue(ctx, tx, events...)
			return err
		})
		if !errors.Is(err, delivery.ErrBusy) {
			break
		}
	}
	var conflict *delivery.ConflictError
	switch {
	case errors.As(err, &conflict):
		return nil, eventConflict.problem(fmt.Sprintf("%q was written before with another %s; a new event needs a new id.", conflict.ID, strings.Join(conflict.Differs, " and ")))
	case errors.Is(err, delivery.ErrBusy):
		return nil, eventBusy.problem(eventBusy.about).with("Retry-After", "1")
	}
	return enqueued, err
}

func (e *NewEvent) event(i int, tenant string) (delivery.Event, error) {
	at := func(field string) string { return fmt.Sprintf("body.events[%d].%s", i, field) }
	event := delivery.Event{ID: e.ID, Tenant: tenant, Type: e.Type, Asset: e.Asset, ContentType: e.ContentType, Payload: e.Payload}
	if e.DeliverAfter != nil {
		event.DeliverAfter = *e.DeliverAfter
	}
	switch {
	case e.Payload != nil && e.PayloadBase64 != nil:
		return event, invalid.at(at("payload_base64"), "stands beside payload; send one of them")
	case e.Payload == nil && e.PayloadBase64 == nil:
		return event, invalid.at(at("payload"), "is missing; send payload or payload_base64")
	case e.PayloadBase64 != nil:
		var err error
		if event.Payload, err = base64.StdEncoding.Strict().DecodeString(*e.PayloadBase64); err != nil {
			return event, invalid.at(at("payload_base64"), "is not standard base64 with padding")
		}
	}
	if len(event.Payload) > delivery.MaxPayload {
		return event, tooLarge.at(at("payload"), fmt.Sprintf("has %d bytes, more than the limit of %d; send a reference to it", len(event.Payload), delivery.MaxPayload))
	}
	return event, nil
}

func (a *api) getEvent(ctx context.Context, in *getEvent) (*answer[view.Event], error) {
	tenant, err := tenantOf(ctx, in.Tenant, "query.tenant")
	if err != nil {
		return nil, err
	}
	e, err := a.Store.Event(ctx, tenant, in.EventID)
	if err != nil {
		return nil, err
	}
	return &answer[view.Event]{view.NewEvent(e)}, nil
}

type eventPayload struct {
	ContentType string `header:"Content-Type"`
	// Policy and Disposition keep a browser from showing what a tenant wrote as a page of ours.
	Policy      string `header:"Content-Security-Policy"`
	Disposition string `header:"Content-Disposition"`
	Body        []byte
}

func (a *api) getEventPayload(ctx context.Context, in *getEvent) (*eventPayload, error) {
	tenant, err := tenantOf(ctx, in.Tenant, "query.tenant")
	if err != nil {
		return nil, err
	}
	contentType, payload, err := a.Store.EventPayload(ctx, tenant, in.EventID)
	if err != nil {
		return nil, err
	}
	return &eventPayload{ContentType: contentType, Policy: "default-src 'none'; sandbox", Disposition: "attachment", Body: payload}, nil
}
