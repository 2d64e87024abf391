package api_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"
)

// The description is 3.1 and says of each operation what a client needs.
func TestDescription(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.want(200, "", "GET", "/openapi.json", nil)
	b.is.Equal(a.header.Get("Content-Type"), "application/openapi+json")
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID, Summary string
			Responses            map[string]any
		}
	}
	b.is.NoErr(json.Unmarshal(a.body, &doc))
	b.is.Equal(doc.OpenAPI, "3.1.0")
	ids := map[string]bool{}
	for _, item := range doc.Paths {
		for _, op := range item {
			b.is.True(op.Summary != "" && op.Responses["default"] != nil && !ids[op.OperationID])
			ids[op.OperationID] = true
		}
	}
	for _, path := range []string{
		"/v1/subscriptions", "/v1/subscriptions/{id}", "/v1/subscriptions/{id}/pause", "/v1/subscriptions/{id}/enable", "/v1/subscriptions/{id}/rotate-secret",
		"/v1/subscriptions/{id}/test", "/v1/subscriptions/{id}/deliveries", "/v1/subscriptions/{id}/deliveries/{delivery_id}",
		"/v1/subscriptions/{id}/deliveries/{delivery_id}/retry", "/v1/subscriptions/{id}/deliveries/retry", "/v1/subscriptions/{id}/streams", "/v1/events",
	} {
		b.is.True(doc.Paths[path] != nil)
	}
}

// The page tells of every operation and every problem, loads nothing and runs nothing.
func TestPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	is := is.New(t)
	a := b.want(200, "", "GET", "/docs", nil)
	page := string(a.body)
	for _, r := range b.described(map[string]string{"id": "x", "delivery_id": "x", "event_id": "x", "key_id": "x", "name": "x"}) {
		is.True(strings.Contains(page, `id="`+r.id+`"`))
	}
	for _, code := range []string{"url_refused", "not_dead", "too_broad", "event_conflict", "payload_refused", "schema_unusable"} {
		is.True(strings.Contains(page, `id="`+code+`"`))
	}
	is.True(strings.HasPrefix(a.header.Get("Content-Security-Policy"), "default-src 'none'; style-src 'sha256-"))
	is.True(!regexp.MustCompile(`(?i)<script|\son\w+=|javascript:|@import|url\(|src=|<link|<iframe`).MatchString(page))
	for _, match := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		is.True(strings.HasPrefix(match[1], "#") || strings.HasPrefix(match[1], "/openapi"))
	}
	// Every anchor leads somewhere.
	for _, match := range regexp.MustCompile(`href="#([^"]*)"`).FindAllStringSubmatch(page, -1) {
		is.True(strings.Contains(page, `id="`+match[1]+`"`))
	}
}
