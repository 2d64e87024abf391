package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/keys"
)

func TestBC57_WhatHasNoTimeYetHasAMark(t *testing.T) {
	t.Parallel()
	s := setup(t)
	sub := s.subscribe("acme", "/hook", holds)
	ids := s.enqueue("acme", "thing.done", "a", "b")
	s.key("acme", keys.Read) // never used
	v := s.signedIn(operatorKey)
	pages := []string{"", "endpoints", endpointPath(sub.ID), endpointPath(sub.ID) + "/streams", "deliveries", deliveryPath(sub.ID, ids[0]), "streams", "keys", "audit", "dead"}
	look := func() {
		t.Helper()
		for _, path := range pages {
			p := v.get(path)
			s.is.Equal(p.status, http.StatusOK)
			if wrong := regexp.MustCompile(`0001-01-01|1970-01-01|0000-|%!|&lt;nil|<nil`).FindString(p.body); wrong != "" {
				t.Errorf("%s shows %q", path, wrong)
			}
			for _, m := range regexp.MustCompile(`(?s)<time[^>]*>.*?</time>`).FindAllString(p.body, -1) {
				if !strings.Contains(m, "UTC") {
					t.Errorf("%s shows a time without its zone: %s", path, m)
				}
			}
		}
	}
	look()                                                                     // BC-49: never tried
	v.in(v.get(deliveryPath(sub.ID, ids[0])), "Settled – not yet", "None yet") // and says so
	v.in(v.get("keys"), "– not yet")
	s.settle(refused)
	look() // a dead letter whose attempt has no status
	v.in(v.get(deliveryPath(sub.ID, ids[0])), "the endpoint refused the connection", "no answer")
}

func TestDeliveriesByFilter(t *testing.T) {
	t.Parallel()
	s := setup(t)
	x := s.scene()
	v := s.signedIn(operatorKey)
	states := func(path string) []string {
		t.Helper()
		p := v.get(path)
		s.is.Equal(p.status, http.StatusOK)
		var found []string
		for _, m := range regexp.MustCompile(`(?s)data-label="State">.*?</span>([a-z, ]+)</span>`).FindAllStringSubmatch(p.body, -1) {
			if !slices.Contains(found, m[1]) {
				found = append(found, m[1])
			}
		}
		slices.Sort(found)
		return found
	}
	s.is.Equal(states("deliveries?state=dead"), []string{"dead", "dead, holds its stream"})
	s.is.Equal(states("deliveries?state=delivering"), []string{"in flight"})
	s.is.Equal(states("deliveries?state=pending"), []string{"pending", "retrying"})
	s.is.Equal(states("deliveries?state=delivered&state=dead"), []string{"dead", "delivered"})
	s.is.Equal(states("deliveries?endpoint="+x.paused.ID.String()), []string{"pending"})
	p := v.get("deliveries?state=delivered&state=lost")
	s.is.Equal(p.status, http.StatusBadRequest)
	v.in(p, `"lost" is none of pending`)
	s.is.Equal(v.get("deliveries?since=yesterday").status, http.StatusBadRequest)
	s.is.Equal(v.get("deliveries?before=x").status, http.StatusBadRequest)
	s.is.Equal(v.get("deliveries?endpoint=sub_1").status, http.StatusNotFound)
	v.has("deliveries?type=order.shipped", "order-900")
	v.has("deliveries?type=no.such", "No delivery is like that.")
	v.has("deliveries?asset=account-17", "ledger.posted")
	v.has("deliveries?no_asset=1&endpoint="+x.disabled.ID.String(), "legacy.synced")
	v.has("deliveries?since=2020-01-01T00:00&until=2021-01-01T00:00", "No delivery is like that.")
	v.has("deliveries?asset=%00%ff", "No delivery is like that.") // what no database can hold
}

// Deliveries of one event share their seq: pages of all endpoints neither repeat nor
// leave out one.
func TestPagesOfAllDeliveries(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for i := range 7 {
		s.subscribe("acme", fmt.Sprintf("/hook/%d", i))
	}
	s.enqueue("acme", "thing.done", names("a", 40)...)
	s.settle(func(r *delivery.Result) { // some of each state
		if r.Claim.Seq%3 == 0 {
			refused(r)
		}
	})
	v := s.signedIn(operatorKey)
	var all []string
	pages := 0
	for path := "deliveries"; path != ""; pages++ {
		p := v.get(path)
		s.is.Equal(p.status, http.StatusOK)
		for _, m := range regexp.MustCompile(`data-key="(sub_\d+)/dlv_(\d+)"`).FindAllStringSubmatch(p.body, -1) {
			all = append(all, fmt.Sprintf("%09s %s", m[2], m[1]))
		}
		path = p.next()
	}
	s.is.Equal(pages, 6) // of 50
	s.is.Equal(len(all), 280)
	s.is.True(slices.IsSortedFunc(all, func(a, b string) int { return strings.Compare(b[:9], a[:9]) }))
	slices.Sort(all)
	s.is.Equal(len(slices.Compact(all)), 280)
}

func TestPagesOfEndpoints(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for i := range 120 {
		sub := s.subscribe("acme", fmt.Sprintf("/hook/%d", i))
		if i%50 == 7 {
			_, err := s.store.Pause(s.ctx, sub.ID, "")
			s.is.NoErr(err)
		}
	}
	v := s.signedIn(operatorKey)
	seen := map[string]bool{}
	var order []string
	for path := "endpoints"; path != ""; {
		p := v.get(path)
		s.is.Equal(p.status, http.StatusOK)
		for _, m := range regexp.MustCompile(`<th scope="row"[^>]*><a class="url" href="/console/endpoints/(sub_\d+)"`).FindAllStringSubmatch(p.body, -1) {
			s.is.True(!seen[m[1]])
			seen[m[1]] = true
		}
		for _, m := range regexp.MustCompile(`</span>(paused|active)</span>`).FindAllStringSubmatch(p.body, -1) {
			order = append(order, m[1])
		}
		path = p.next()
	}
	s.is.Equal(len(seen), 120)
	s.is.Equal(order[:4], []string{"paused", "paused", "paused", "active"})
	v.has("endpoints?q=hook%2F119", "/hook/119")
	v.has("endpoints?q=%25", "No endpoint is like that.")
	s.is.Equal(v.get("endpoints?state=gone").status, http.StatusBadRequest)
	s.is.Equal(v.get("endpoints?after=x").status, http.StatusBadRequest)
}

func TestPlaceInTheStream(t *testing.T) {
	t.Parallel()
	s := setup(t)
	sub := s.subscribe("acme", "/hook")
	ids := s.enqueue("acme", "thing.done", "a", "b", "a", "a", "", "a")
	s.settle(succeed) // the first of each
	s.settle(refused) // the second of a waits
	v := s.signedIn(operatorKey)
	p := v.has(deliveryPath(sub.ID, ids[3]), "previous", "next", "this thing.done "+ids[3].String(), "1 stands before it")
	s.is.True(strings.Contains(p.text(), "previous thing.done "+ids[2].String()))
	s.is.True(strings.Contains(p.text(), "next thing.done "+ids[5].String()))
	v.has(deliveryPath(sub.ID, ids[5]), "head thing.done "+ids[2].String(), "2 stand before it")
	v.has(deliveryPath(sub.ID, ids[0]), "this is the first", "next thing.done "+ids[2].String())
	v.has(deliveryPath(sub.ID, ids[4]), "this is the first", "nothing has followed yet") // without an asset
	s.is.Equal(v.get(deliveryPath(sub.ID, ids[5]+99)).status, http.StatusNotFound)
}

// A payload and a secret are on no page.
func TestNoPageShowsAPayloadOrASecret(t *testing.T) {
	t.Parallel()
	s := setup(t)
	x := s.scene()
	v := s.signedIn(operatorKey)
	for _, p := range pagesOf(x) {
		body := v.get(p[1]).body
		for _, secret := range []string{`"secret":"payload"`, "secret&#34;:&#34;payload", "a secret value", operatorKey} {
			if strings.Contains(body, secret) {
				t.Errorf("%s shows %s", p[1], secret)
			}
		}
		if m := regexp.MustCompile(`whsec_[A-Za-z0-9+/=]{10,}`).FindString(body); m != "" {
			t.Errorf("%s shows %s", p[1], m)
		}
	}
}

// The database being away is a 503, and tells nothing of it.
func TestPagesWithoutADatabase(t *testing.T) {
	t.Parallel()
	away, err := pgxpool.New(t.Context(), "postgres://nobody:hidden@127.0.0.1:1/nowhere?sslmode=disable") // connects when asked
	is.New(t).NoErr(err)
	defer away.Close()
	s := setup(t, func(c *Config) { c.Pool = away })
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		r := httptest.NewRequestWithContext(s.ctx, method, Root+"theme", nil)
		if method == http.MethodGet {
			r.URL.Path = Root
		}
		r.AddCookie(&http.Cookie{Name: sessionCookie, Value: "a session"})
		w := httptest.NewRecorder()
		s.console.ServeHTTP(w, r)
		s.is.Equal(w.Code, http.StatusServiceUnavailable)
		s.is.True(strings.Contains(w.Body.String(), "The database does not answer"))
		s.is.True(!strings.Contains(w.Body.String(), "nobody"))
	}
}

// What goes wrong inside is for the log.
func TestAPageThatFailsTellsNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	v := s.signedIn(operatorKey)
	s.exec("ALTER TABLE postlane.statistics_progress RENAME TO away")
	p := v.get("")
	s.is.Equal(p.status, http.StatusInternalServerError)
	v.in(p, "Something went wrong here", "The server's log tells more.")
	s.is.True(!strings.Contains(p.body, "statistics_progress")) // and the page does not
}
