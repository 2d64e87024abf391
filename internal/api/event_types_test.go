package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/postlane-go/postlane/internal/api"
)

const money = `{"type":"object","required":["total"],"properties":{"total":{"type":"integer","minimum":1}}}`

func TestEventTypesAreWrittenAndListed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	put := b.want(200, b.acme, "PUT", "/v1/event-types/invoice.paid", `{"description":"An invoice is paid","validate":true,"schema": `+money+`}`).object(b)
	b.is.Equal(put["name"], "invoice.paid")
	got := b.want(200, b.reader, "GET", "/v1/event-types/invoice.paid", nil).object(b)
	b.is.Equal(got, put)
	b.is.Equal(got["schema"].(map[string]any)["type"], "object")
	b.want(200, b.acme, "PUT", "/v1/event-types/invoice.old", map[string]any{"deprecated": true, "schema": nil})
	b.want(200, operatorKey, "PUT", "/v1/event-types/a.b?tenant=acme", map[string]any{})
	b.refused("invalid", b.do(operatorKey, "PUT", "/v1/event-types/a.b", map[string]any{})) // whose?

	var names []string
	for path, pages := "/v1/event-types?limit=2", 0; path != ""; pages++ {
		page := b.want(200, b.acme, "GET", path, nil)
		b.is.True(!strings.Contains(string(page.body), `"schema"`))
		for _, e := range b.data(page) {
			names = append(names, e.(map[string]any)["name"].(string))
		}
		path = ""
		if next, more := page.object(b)["next_cursor"].(string); more {
			path = "/v1/event-types?limit=2&cursor=" + next
		}
	}
	b.is.Equal(names, []string{"a.b", "invoice.old", "invoice.paid"})

	// A new version replaces all of the one before.
	b.want(200, b.acme, "PUT", "/v1/event-types/invoice.paid", map[string]any{})
	got = b.want(200, b.acme, "GET", "/v1/event-types/invoice.paid", nil).object(b)
	b.is.Equal(got["schema"], nil)
	b.is.Equal(got["description"], "")
	b.want(204, b.acme, "DELETE", "/v1/event-types/invoice.paid", nil)
	b.refused("not_found", b.do(b.acme, "GET", "/v1/event-types/invoice.paid", nil))
	b.refused("not_found", b.do(b.acme, "DELETE", "/v1/event-types/invoice.paid", nil))
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.audit WHERE tenant = 'acme' AND action = 'put-event-type' AND target = 'invoice.paid' AND outcome = 'ok'`), int64(2))
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.audit WHERE tenant = 'acme' AND action = 'delete-event-type' AND target = 'invoice.paid'`), int64(2))
}

func TestASchemaThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for body, want := range map[string]string{
		`{"schema":{"type":"thing"}}`:                                "/type",
		`{"schema":{"$ref":"https://example.com/a.json"}}`:           "nothing else is loaded",
		`{"schema":{"$ref":"file:///etc/passwd"}}`:                   "nothing else is loaded",
		`{"schema":{"$ref":"#"}}`:                                    "comes back to itself",
		`{"schema":7}`:                                               "body.schema",
		`{"schema":{"title":"` + strings.Repeat("a", 70_000) + `"}}`: "more than 65536",
		`{"validate":true}`:                                          "body.validate needs a schema",
		`{"schemas":{}}`:                                             "schemas",
	} {
		text := b.refused("invalid", b.do(b.acme, "PUT", "/v1/event-types/a.b", body))
		if !strings.Contains(text, want) || strings.Contains(text, "postlane:") {
			t.Errorf("%.60s: %s does not say %q", body, text, want)
		}
	}
	for _, name := range []string{"a.*", "postlane.test", "a%20b", strings.Repeat("a", 300)} {
		text := b.refused("invalid", b.do(b.acme, "PUT", "/v1/event-types/"+name, map[string]any{}))
		b.is.True(strings.Contains(text, "path.name"))
	}
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.event_types`), int64(0))
}

func TestEventsMeetTheSchemasOfTheirTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	send := func(key string, payloads ...string) answer {
		t.Helper()
		var events []string
		for _, p := range payloads {
			events = append(events, `{"type":"invoice.paid",`+p+`}`)
		}
		return b.do(key, "POST", "/v1/events", `{"events":[`+strings.Join(events, ",")+`]}`)
	}
	count := func() int64 { return one[int64](b, `SELECT count(*) FROM postlane.events`) }
	b.is.Equal(send(b.acme, `"payload":"s3cret"`).status, 201) // nothing is described yet
	b.want(200, b.acme, "PUT", "/v1/event-types/invoice.paid", `{"schema":`+money+`}`)
	b.is.Equal(send(b.acme, `"payload":"s3cret"`).status, 201) // nor validated
	b.want(200, b.acme, "PUT", "/v1/event-types/invoice.paid", `{"validate":true,"schema":`+money+`}`)
	before := count()
	for payload, want := range map[string]string{
		`"payload":{"total":0,"note":"s3cret"}`: "/total does not meet minimum",
		`"payload":{"total":"s3cret"}`:          "/total does not meet type (integer)",
		`"payload":{"note":"s3cret"}`:           "does not meet required (total)",
		`"payload":"s3cret"`:                    "does not meet type (object)",
		`"payload_base64":"czNjcmV0"`:           "the payload is not JSON",
	} {
		refusal := send(b.acme, `"payload":{"total":1}`, payload)
		text := b.refused("payload_refused", refusal)
		b.is.Equal(refusal.status, 400)
		b.is.True(strings.Contains(text, `"location":"body.events[1].payload"`))
		if !strings.Contains(text, want) || strings.Contains(text, "s3cret") {
			t.Errorf("%s does not say %q", text, want)
		}
	}
	b.is.Equal(count(), before) // all or none
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.audit WHERE action = 'send-events' AND outcome = 'payload_refused'`), int64(5))
	b.is.Equal(send(b.acme, `"payload":{"total":1}`).status, 201)
	b.is.Equal(send(b.other, `"payload":"s3cret"`).status, 201) // another tenant's own affair
	b.want(200, b.acme, "PUT", "/v1/event-types/invoice.paid", `{"validate":true,"schema":{"type":"string"}}`)
	b.is.Equal(send(b.acme, `"payload":"s3cret"`).status, 201) // at once
	b.want(204, b.acme, "DELETE", "/v1/event-types/invoice.paid", nil)
	b.is.Equal(send(b.acme, `"payload":7`).status, 201)
}

// A schema that was stored without a check, as by SQL, is no fault of who writes events, and
// they are told what to wait for.
func TestASchemaThatWasStoredUnchecked(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	b := setup(t, func(c *api.Config) { c.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	const event = `{"events":[{"type":"a.c","payload":1},{"type":"a.b","payload":1}]}`
	for schema, why := range map[string]string{
		`{"type":"objekt"}`: "/type", `{"type":`: "not JSON", `"` + strings.Repeat("x", 70_000) + `"`: "more than 65536",
	} {
		b.exec(`INSERT INTO postlane.event_types (tenant, name, schema, validate) VALUES ('acme', 'a.b', $1, true)
			ON CONFLICT (tenant, name) DO UPDATE SET schema = excluded.schema, updated_at = clock_timestamp()`, schema)
		refusal := b.do(b.acme, "POST", "/v1/events", event)
		text := b.refused("schema_unusable", refusal)
		b.is.Equal(refusal.status, 503)
		b.is.True(refusal.header.Get("Retry-After") != "")
		if !strings.Contains(text, "The schema of a.b cannot be used") || !strings.Contains(text, why) {
			t.Errorf("%s does not say %q", text, why)
		}
		b.is.True(strings.Contains(log.String(), `The schema of a.b cannot be used`))
		b.is.True(strings.Contains(log.String(), `of tenant \"acme\"`))
		log.Reset()
		var shown any = schema
		_ = json.Unmarshal([]byte(schema), &shown) // as text where it is not JSON
		b.is.Equal(b.want(200, b.acme, "GET", "/v1/event-types/a.b", nil).object(b)["schema"], shown)
		b.is.Equal(b.do(b.acme, "POST", "/v1/events", `{"events":[{"type":"a.c","payload":1}]}`).status, 201) // another type
		b.is.Equal(b.do(b.other, "POST", "/v1/events", event).status, 201)                                    // another tenant
	}
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.events WHERE tenant = 'acme' AND type = 'a.b'`), int64(0))
	b.want(200, b.acme, "PUT", "/v1/event-types/a.b", `{"validate":true,"schema":{"type":"integer"}}`)
	b.is.Equal(b.do(b.acme, "POST", "/v1/events", event).status, 201)
}

// A payload that would have a schema try every one of 2^n branches is refused instead.
func TestAPayloadCannotBurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	branch := `{"properties":{"a":{"$ref":"#"}},"required":["%s"]}`
	b.want(200, b.acme, "PUT", "/v1/event-types/a.b", `{"validate":true,"schema":{"anyOf":[`+fmt.Sprintf(branch, "x")+","+fmt.Sprintf(branch, "y")+`]}}`)
	payload := strings.Repeat(`{"a":`, 50) + "{}" + strings.Repeat("}", 50)
	text := b.refused("payload_refused", b.do(b.acme, "POST", "/v1/events", `{"events":[{"type":"a.b","payload":`+payload+`}]}`))
	b.is.True(strings.Contains(text, "too much work"))
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.events`), int64(0))
}
