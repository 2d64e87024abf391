package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/keys"
)

func TestEventTypesAreATenants(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.describeTypes()
	v := s.signedIn(s.key("acme", keys.Read))
	v.has("event-types", "order.paid An order is paid in full", "validated in use", "not validated deprecated")
	p := v.has("event-types/order.paid", "refuses those that do not meet the schema", `"pattern": "^order_[0-9]+$"`)
	s.is.True(!strings.Contains(p.body, "<script>document"))
	s.is.Equal(v.get("event-types/order.none").status, http.StatusNotFound)

	other := s.signedIn(s.key("other", keys.Write))
	other.has("event-types", "No event type is described")
	other.has("event-types?tenant=acme", "No event type is described")
	s.is.Equal(other.get("event-types/order.paid?tenant=acme").status, http.StatusNotFound)

	operator := s.signedIn(operatorKey)
	operator.has("event-types", "choose one under Tenant")
	s.is.Equal(operator.get("event-types/order.paid").status, http.StatusNotFound)
	operator.has("event-types?tenant=acme", "order.paid")
	operator.has("event-types/order.paid?tenant=acme", "Schema of payloads")
}

func TestEventTypesComeInPages(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for i := range rowsPerPage + 1 {
		_, err := s.store.PutEventType(s.ctx, delivery.EventType{Tenant: "acme", Name: fmt.Sprintf("a.t%03d", i)})
		s.is.NoErr(err)
	}
	v := s.signedIn(operatorKey)
	first := v.has("event-types?tenant=acme", "a.t000", "a.t049")
	s.is.True(!strings.Contains(first.body, "a.t050"))
	last := v.has(first.next(), "a.t050", "First page")
	s.is.Equal(last.next(), "")
}
