package console

import "testing"

// pagesOf are all pages of a scene, by a name for their pictures.
func pagesOf(x *scene) [][2]string {
	well, flaky, held := endpointPath(x.well.ID), endpointPath(x.flaky.ID), endpointPath(x.held.ID)
	return [][2]string{
		{"overview", ""},
		{"overview-tenant", "?tenant=acme"},
		{"endpoints", "endpoints"},
		{"endpoint", well},
		{"endpoint-hour", well + "?window=hour"},
		{"endpoint-disabled", endpointPath(x.disabled.ID)},
		{"endpoint-long", flaky},
		{"endpoint-streams", well + "/streams"},
		{"endpoint-new", "endpoints/new"},
		{"endpoint-editing", flaky + "/editing"},
		{"endpoint-deleting", well + "/deleting"},
		{"deliveries", "deliveries"},
		{"deliveries-filtered", "deliveries?state=dead&state=pending&endpoint=" + x.flaky.ID.String()},
		{"delivery", deliveryPath(x.well.ID, x.delivered)},
		{"delivery-hostile", deliveryPath(x.flaky.ID, x.dead)},
		{"delivery-retried", deliveryPath(x.flaky.ID, x.retried)},
		{"delivery-held", deliveryPath(x.held.ID, x.holding)},
		{"delivery-waiting", deliveryPath(x.held.ID, x.waiting)},
		{"delivery-flying", deliveryPath(x.well.ID, x.flying)},
		{"dead", "dead"},
		{"dead-letters", "dead/" + x.flaky.ID.String() + "?reason=attempts+used+up:+connection_refused"},
		{"replaying", endpointPath(x.well.ID) + "/replaying?since=2026-01-01T00:00"},
		{"dead-retrying", "dead/" + x.flaky.ID.String() + "/retrying?reason=attempts+used+up:+connection_refused"},
		{"streams", "streams"},
		{"event-types", "event-types?tenant=acme"},
		{"event-types-all", "event-types"},
		{"event-type", "event-types/order.paid?tenant=acme"},
		{"event-type-new", "new-event-type?tenant=acme"},
		{"event-type-editing", "event-types/order.paid/editing?tenant=acme"},
		{"event-type-deleting", "event-types/order.paid/deleting?tenant=acme"},
		{"outbox", "outbox"},
		{"outbox-pending", "outbox?state=pending"},
		{"keys", "keys"},
		{"audit", "audit"},
		{"endpoint-held", held},
	}
}

// Every page, wide and on a phone, light and dark: no error in the browser's console, no
// violation of the policy, nothing that axe finds, and nothing to be moved sideways.
func TestEveryPageInABrowser(t *testing.T) {
	t.Parallel()
	s := setup(t)
	x := s.scene()
	s.key("acme", "read")
	s.parked(2, "a-queue-with-a-rather-long-name-of-an-entity", "b", "c")
	v := s.signedIn(operatorKey)
	v.seen(v.press(endpointPath(x.well.ID)+"/pause", "reason", "maintenance"))
	v.seen(v.press(endpointPath(x.well.ID) + "/enable"))
	v.press(deliveryPath(x.well.ID, x.delivered) + "/retry") // refused, on record

	b := s.browser()
	b.see("sign-in")
	b.accessible("sign-in")
	b.picture("sign-in-light")
	b.signIn(operatorKey)
	b.clean("sign-in")
	for _, p := range pagesOf(x) {
		name, path := p[0], p[1]
		b.scheme("light")
		b.size(1280, 900)
		b.see(path)
		b.accessible(name)
		b.fits(name)
		b.picture(name + "-light")
		b.scheme("dark")
		b.accessible(name + ", dark")
		b.picture(name + "-dark")
		b.size(390, 844)
		b.scheme("light")
		b.accessible(name + ", phone")
		b.fits(name + ", phone")
		b.picture(name + "-phone")
		b.clean(name)
	}
}
