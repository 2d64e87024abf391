package api

import (
	"fmt"
	"maps"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// Tags of operations.
const (
	tagSubscriptions = "Subscriptions"
	tagDeliveries    = "Deliveries"
	tagStreams       = "Streams"
	tagEvents        = "Events"
	tagEventTypes    = "Event types"
	tagKeys          = "Keys"
	tagAudit         = "Audit"
	tagServer        = "Server"
)

const about = `Webhooks from PostgreSQL: an event that is written here, or in a transaction of the ` +
	`application itself, reaches every subscribed endpoint at least once and in order per stream.

Every request carries a key: Authorization: Bearer KEY. A tenant's key sees what is the ` +
	`tenant's, and everything else as if it did not exist; an operator's names a tenant where one is needed. ` +
	`Where a server works with several databases, a request with the operator's key of its environment that names no subscription in its path ` +
	`names a database by the header Postlane-Database; every other key is in the one that it opens. ` +
	`Lists come as {"data": [...], "next_cursor": ...}: pass the cursor on with the same filters; null is the end. ` +
	`Times are RFC 3339 in UTC, or null. What is not a success is a problem (RFC 9457) whose code is stable.`

func description() huma.Config {
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Postlane", Version: "1", Description: about},
			Tags: []*huma.Tag{
				{Name: tagSubscriptions, Description: "Endpoints, and which events they want."},
				{Name: tagDeliveries, Description: "Events on their way to an endpoint, and what became of them. Payloads are never shown."},
				{Name: tagStreams, Description: "What waits, per subscription and asset. Nothing in a stream starts before what stands in front of it is settled."},
				{Name: tagEvents, Description: "What happened, from producers that have no transaction to write it in."},
				{Name: tagEventTypes, Description: "What events of a type are, and what their payloads look like. Types need no description: events of one that has none are written all the same."},
				{Name: tagKeys, Description: "Who may call this API. For operators."},
				{Name: tagAudit, Description: "Who changed what, and what came of it."},
				{Name: tagServer, Description: "The process that answers. For operators."},
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"key": {Type: "http", Scheme: "bearer", Description: "A key of a tenant, or an operator's."},
				},
			},
		},
		Formats:       map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat: "application/json",
	}
}

// openAnswers lets answers have more fields than are described, so that one which is added
// later is no breach of what a client was generated from. Requests stay closed: there an
// unknown field is a mistake.
func openAnswers(doc *huma.OpenAPI) {
	asked := map[string]bool{}
	var visit func(*huma.Schema)
	visit = func(s *huma.Schema) {
		if s == nil {
			return
		}
		if s.Ref != "" && !asked[s.Ref] {
			asked[s.Ref] = true
			visit(doc.Components.Schemas.SchemaFromRef(s.Ref))
		}
		visit(s.Items)
		for _, property := range s.Properties {
			visit(property)
		}
	}
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Post, item.Put, item.Patch} {
			if op != nil && op.RequestBody != nil {
				visit(op.RequestBody.Content["application/json"].Schema)
			}
		}
	}
	for name, s := range doc.Components.Schemas.Map() {
		if !asked["#/components/schemas/"+name] {
			s.AdditionalProperties = nil
		}
	}
}

// serveDescription serves what the operations say of themselves: for programs, for
// generators that know 3.0 only, and for people.
func (a *api) serveDescription(mux *http.ServeMux) error {
	openAnswers(a.document.OpenAPI())
	current, err := a.document.OpenAPI().MarshalJSON()
	if err != nil {
		return fmt.Errorf("api: describe: %w", err)
	}
	older, err := a.document.OpenAPI().Downgrade()
	if err != nil {
		return fmt.Errorf("api: describe: %w", err)
	}
	page, policy, err := newPage(a.document.OpenAPI())
	if err != nil {
		return fmt.Errorf("api: describe: %w", err)
	}
	serve := func(path, contentType string, body []byte, header http.Header) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			maps.Copy(w.Header(), header)
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Cache-Control", "no-cache")
			_, _ = w.Write(body) // the client is gone if this fails
		})
	}
	serve("/openapi.json", "application/openapi+json", current, nil)
	serve("/openapi-3.0.json", "application/openapi+json", older, nil)
	serve("/docs", "text/html; charset=utf-8", page, http.Header{
		"Content-Security-Policy": {policy}, "Referrer-Policy": {"no-referrer"},
	})
	return nil
}
