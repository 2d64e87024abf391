package console

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/keys"
)

// version is that of the event type on its form.
func (p reply) version() string {
	m := regexp.MustCompile(`name="version" value="([^"]+)"`).FindStringSubmatch(p.body)
	if m == nil {
		return ""
	}
	return html.UnescapeString(m[1])
}

func TestDescribeAnEventType(t *testing.T) {
	t.Parallel()
	s := setup(t)
	v := s.signedIn(s.key("acme", keys.Write))
	v.has("event-types", "New event type")
	p := v.seen(v.press("event-types/create", "for", "other", "name", "order.paid", "description", "an <b>order</b>", "schema", "{\r\n \"type\": \"object\"}\r\n", "validate", "yes"))
	v.in(p, "Written. It counts for the next request", "order.paid", "an <b>order</b>", "refuses those that do not meet the schema", "Change…", "Delete…")
	s.is.True(!strings.Contains(p.body, "<b>order"))
	got, err := s.store.EventType(s.ctx, "acme", "order.paid") // a tenant's are its own
	s.is.NoErr(err)
	s.is.Equal(got.Schema, "{\n \"type\": \"object\"}")
	s.is.Equal([]bool{got.Validate, got.Deprecated}, []bool{true, false})

	form := v.has("event-types/order.paid/editing")
	s.is.True(strings.Contains(form.body, "{\n &#34;type&#34;: &#34;object&#34;}</textarea>"))
	v.in(v.seen(v.press("event-types/order.paid/update", "version", form.version(), "description", "other", "deprecated", "yes")), "Written.", "not validated", "deprecated", "There is none.")
	again := v.press("event-types/order.paid/update", "version", form.version(), "description", "mine")
	s.is.Equal(again.status, http.StatusConflict) // somebody who has not seen the last version
	v.in(again, "Somebody else changed it")
	s.is.True(strings.Contains(again.body, `value="mine"`))
	got, err = s.store.EventType(s.ctx, "acme", "order.paid")
	s.is.NoErr(err)
	s.is.Equal([]string{got.Description, got.Schema}, []string{"other", ""})

	v.has("event-types/order.paid/deleting", "Its events stay, and more may come.")
	s.is.Equal(v.press("event-types/order.paid/delete").status, http.StatusBadRequest) // not sure
	v.in(v.seen(v.press("event-types/order.paid/delete", "sure", "yes")), "Deleted.", "No event type is described")
	for _, path := range []string{"update", "delete"} {
		s.is.Equal(v.press("event-types/order.paid/"+path, "sure", "yes", "version", form.version()).status, http.StatusNotFound)
	}
	s.is.Equal(v.get("event-types/order.paid/editing").status, http.StatusNotFound)
	s.is.Equal(v.get("event-types/order.paid/deleting").status, http.StatusNotFound)
	v.has("audit", "put-event-type", "order.paid", "validated", "changed_meanwhile", "delete-event-type", "not_found", "invalid", "acme, write")
}

func TestAnEventTypeThatCannotBe(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.describeTypes()
	s.exec(`INSERT INTO postlane.event_types (tenant, name) SELECT 'full', 'a.' || n FROM generate_series(1, $1) n`, delivery.MaxEventTypes)
	v := s.signedIn(operatorKey)
	_, before, _ := strings.Cut(s.everything(), "event_types:")
	for name, c := range map[string]struct {
		status              int
		at, says            string
		tenant, kind, other string
		more                []string
	}{
		"no tenant":    {400, "for", "say whose it is", "", "a.b", "", nil},
		"no name":      {400, "name", "is empty; name the kind of event", "acme", "", "", nil},
		"name":         {400, "name", "full stops between", "acme", "a b", "", nil},
		"ours":         {400, "name", "kept for Postlane's own events", "acme", "postlane.x", "", nil},
		"taken":        {409, "name", "described already", "acme", "order.paid", "", nil},
		"one too many": {400, "name", "one more than the 1000 event types", "full", "b", "", nil},
		"description":  {400, "description", "at most 1000 bytes", "acme", "a.b", "", []string{"description", strings.Repeat("x", 2500)}},
		"not JSON":     {400, "schema", "it is not JSON", "acme", "a.b", `{"type": `, nil},
		"no schema":    {400, "schema", "cannot be used", "acme", "a.b", `{"type": "objekt"}`, nil},
		"leads out":    {400, "schema", "is not in the schema, and nothing else is loaded", "acme", "a.b", `{"$ref": "https://evil.example/s.json"}`, nil},
		"too large":    {400, "schema", "more than 65536", "acme", "a.b", `"` + strings.Repeat("x", delivery.MaxSchema) + `"`, nil},
		"without one":  {400, "validate", "needs a schema", "acme", "a.b", "", []string{"validate", "yes"}},
	} {
		p := v.press("event-types/create?tenant=acme", append(c.more, "for", c.tenant, "name", c.kind, "schema", c.other)...)
		if p.status != c.status || !strings.Contains(p.text(), c.says) || strings.Count(p.body, `role="alert"`) != 1 {
			t.Errorf("%s: %d %.3000s", name, p.status, p.text())
		}
		if !regexp.MustCompile(`id="` + c.at + `"[^>]* aria-invalid="true" aria-describedby="problem">`).MatchString(p.body) {
			t.Errorf("%s is not told at %s:\n%.3000s", name, c.at, p.body)
		}
		s.is.True(strings.Contains(html.UnescapeString(p.body), c.kind)) // what was typed is still there
	}
	p := v.press("event-types/create?tenant=acme", "for", "acme", "name", "a.b", "schema", strings.Repeat("x", maxForm))
	s.is.Equal(p.status, http.StatusRequestEntityTooLarge)
	v.in(p, "The form is too large")
	s.is.Equal(v.press("event-types/order.paid/update?tenant=acme", "version", "yesterday").status, http.StatusBadRequest)
	version := v.get("event-types/order.paid/editing?tenant=acme").version()
	p = v.press("event-types/order.paid/update?tenant=acme", "version", version, "schema", "[")
	s.is.Equal(p.status, http.StatusBadRequest)
	v.in(p, "Change an event type", "Schema cannot be used")
	s.is.Equal(p.version(), version)
	s.is.Equal(v.press("event-types/order.paid/delete", "sure", "yes").status, http.StatusNotFound) // whose?
	if _, after, _ := strings.Cut(s.everything(), "event_types:"); after != before {
		t.Errorf("changed\nfrom\n%s\nto\n%s", before, after)
	}

	operator := v.press("event-types/create", "for", "third", "name", "a.b")
	v.in(v.seen(operator), "Written.", "third")
}

// What is long is stored whole or refused, and never cut.
func TestLongFieldsAreNotCut(t *testing.T) {
	t.Parallel()
	s := setup(t)
	v := s.signedIn(s.key("acme", keys.Write))
	schema := fmt.Sprintf(`{"enum": ["%s"]}`, strings.Repeat(`{\"'é <`, 7000))
	v.in(v.seen(v.press("event-types/create", "name", "a.b", "schema", schema)), "Written.")
	got, err := s.store.EventType(s.ctx, "acme", "a.b")
	s.is.NoErr(err)
	s.is.Equal(got.Schema, schema)

	var conditions []string
	for i := range 12 {
		conditions = append(conditions, fmt.Sprintf("data.a%d eq \"%s\"", i, strings.Repeat("x", 300)))
	}
	settings := []string{"url", "https://hooks.acme.example/", "event_types", "*", "on_dead", "continue"}
	s.is.Equal(v.press("endpoints/create", append(settings, "conditions", strings.Join(conditions, "\r\n"))...).status, http.StatusOK)
	list, err := s.store.Subscriptions(s.ctx, "acme", 0, 10)
	s.is.NoErr(err)
	s.is.Equal(len(list[0].Conditions), len(conditions))
	settings[1] += strings.Repeat("x", 2048)
	s.is.Equal(v.press("endpoints/create", settings...).status, http.StatusBadRequest)
}
