package console

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/keys"
)

func TestMakeAndChangeAnEndpoint(t *testing.T) {
	t.Parallel()
	s := setup(t)
	v := s.signedIn(s.key("acme", keys.Write))
	v.has("endpoints", "Make one here")
	good := []string{
		"url", "https://hooks.acme.example/a?b=<c>", "description", "for <b>us</b>", "event_types", "order.*, invoice.paid\r\ncontact.*", "on_dead", "hold",
		"max_attempts", "5", "max_in_flight", "", "disable_after", "", "v1a", "yes", "rate_limit", "10/m", "headers", "X-Token: s3cret\r\nX-Other: b",
	}
	with := func(name, value string) []string {
		changed := slices.Clone(good)
		for i := 0; i < len(changed); i += 2 {
			if changed[i] == name {
				changed[i+1] = value
			}
		}
		return changed
	}
	for name, wrong := range map[string][2]string{
		"scheme": {"url", "ftp://hooks.acme.example"}, "user": {"url", "https://a:b@hooks.acme.example/"}, "types": {"event_types", " "}, "pattern": {"event_types", "a*b"},
		"number": {"max_attempts", "many"}, "zero": {"max_attempts", "0"}, "header": {"headers", "no colon"}, "ours": {"headers", "webhook-id: x"}, "dead": {"on_dead", "explode"}, "rate": {"rate_limit", "fast"},
	} {
		p := v.press("endpoints/create", with(wrong[0], wrong[1])...)
		if p.status != http.StatusBadRequest || !strings.Contains(p.body, `role="alert"`) {
			t.Errorf("%s: %d %s", name, p.status, p.text())
		}
		s.is.True(strings.Contains(p.body, "for &lt;b&gt;us&lt;/b&gt;")) // what was typed is still there
		s.is.True(!strings.Contains(p.body, "s3cret"))
	}
	s.is.Equal(one[int](s, "SELECT count(*) FROM postlane.subscriptions"), 0)
	p := v.press("endpoints/create", append(good, "for", "other")...) // a tenant's are its own
	s.is.Equal(p.status, http.StatusOK)
	v.in(p, "this is its signing secret", "whsec_")
	list, err := s.store.Subscriptions(s.ctx, "acme", 0, 10)
	s.is.NoErr(err)
	s.is.Equal(len(list), 1)
	sub := list[0]
	s.is.Equal(sub.EventTypes, []string{"order.*", "invoice.paid", "contact.*"})
	s.is.Equal(sub.HeaderNames, []string{"X-Other", "X-Token"})
	s.is.Equal([]any{sub.OnDead, sub.MaxAttempts, sub.MaxInFlight, sub.DisableAfter, sub.V1a}, []any{delivery.Hold, 5, 0, delivery.Never, true})

	s.is.Equal(sub.RateLimit.String(), "10/m")

	path := endpointPath(sub.ID)
	p = v.has(path+"/editing", "10/m", "empty keeps X-Other, X-Token")
	s.is.True(strings.Contains(p.body, "https://hooks.acme.example/a?b=&lt;c&gt;"))
	s.is.True(!strings.Contains(p.body, "s3cret"))
	change := with("headers", "")
	change[1], change[11] = "https://hooks.acme.example/b", "3"
	v.in(v.seen(v.press(path+"/update", change...)), "Changed.", "hooks.acme.example/b", "3")
	got, err := s.store.Subscription(s.ctx, sub.ID)
	s.is.NoErr(err)
	s.is.Equal(got.MaxAttempts, 5)
	s.is.Equal(got.MaxInFlight, 3)
	s.is.Equal(got.HeaderNames, sub.HeaderNames) // kept
	v.seen(v.press(path+"/update", append(change, "drop_headers", "yes")...))
	got, err = s.store.Subscription(s.ctx, sub.ID)
	s.is.NoErr(err)
	s.is.Equal(len(got.HeaderNames), 0)
	s.is.Equal(v.press(path+"/update", with("url", "ftp://hooks.acme.example/")...).status, http.StatusBadRequest)
	v.has("audit", "create-subscription", "update-subscription", "url_refused", sub.ID.String())
	s.is.True(!strings.Contains(v.get("audit").body, "s3cret"))
	operator := s.signedIn(operatorKey)
	s.is.Equal(operator.press("endpoints/create", good...).status, http.StatusBadRequest) // whose?
	operator.in(operator.press("endpoints/create", append(good, "for", "third")...), "this is its signing secret")
}

func TestPauseEnableDelete(t *testing.T) {
	t.Parallel()
	s := setup(t)
	sub := s.subscribe("acme", "/hook")
	s.enqueue("acme", "thing.done", "a", "b")
	v := s.signedIn(s.key("acme", keys.Write))
	path := endpointPath(sub.ID)

	p := v.seen(v.press(path+"/pause", "reason", "the <partner> moves house"))
	v.in(p, "Paused. No request to the endpoint starts any more", "paused", "the <partner> moves house")
	s.is.True(!strings.Contains(p.body, "<partner>"))
	s.is.True(!strings.Contains(v.get(path).text(), "No request to the endpoint starts any more")) // told once
	v.in(v.seen(v.press(path+"/enable")), "Enabled.", "active")

	v.has(path+"/deleting", "2 deliveries that are pending, retrying or held are discarded", "subscription deleted")
	s.is.Equal(v.press(path+"/delete").status, http.StatusBadRequest) // not sure
	v.in(v.seen(v.press(path+"/delete", "sure", "yes")), "Deleted.", "There is no endpoint yet")
	s.is.Equal(v.get(path).status, http.StatusNotFound)
	s.is.Equal(v.press(path+"/enable").status, http.StatusNotFound)
	v.has("audit", "pause-subscription", "the <partner> moves house", "enable-subscription", "delete-subscription", "acme, write", "not_found", "invalid")
}

func TestBC27_WhyAnEndpointIsDisabled(t *testing.T) {
	t.Parallel()
	s := setup(t)
	sub := s.subscribe("acme", "/hook", dies, func(set *delivery.Settings) { set.DisableAfter = 2 })
	s.enqueue("acme", "thing.done", "a", "b")
	s.settle(answered(500, "no"))
	v := s.signedIn(s.key("acme", keys.Write))
	why := "2 deliveries in a row died, the last with: attempts used up: http_status"
	v.has("", "disabled", why)
	v.has("endpoints?state=disabled", "disabled", why)
	v.has(endpointPath(sub.ID), "disabled", why, "by the system", "UTC")
}

func TestRotateShowsTheSecretOnce(t *testing.T) {
	t.Parallel()
	s := setup(t)
	sub := s.subscribe("acme", "/hook", func(set *delivery.Settings) { set.V1a = true })
	v := s.signedIn(operatorKey)
	path := endpointPath(sub.ID)
	secrets := regexp.MustCompile(`whsec_[A-Za-z0-9+/=]{20,}`)
	s.is.Equal(secrets.FindString(v.get(path).body), "")
	p := v.press(path+"/rotate-secret", "overlap", "3600")
	s.is.Equal(p.status, http.StatusOK)
	s.is.Equal(p.header.Get("Cache-Control"), "no-store")
	secret := secrets.FindString(html.UnescapeString(p.body)) // base64 has a +
	s.is.True(secret != "")
	v.in(p, "shown now and never again", "goes on signing beside it for 1 h")
	for _, path := range []string{path, "audit", "endpoints", ""} {
		s.is.True(!strings.Contains(html.UnescapeString(v.get(path).body), secret))
	}
	v.has(path, "v1, number 1", "in 59 min")
	v.has("audit", "rotate-secret", "overlap 1h0m0s")
	s.is.Equal(v.press(path+"/rotate-secret", "overlap", "a while").status, http.StatusBadRequest)
	s.is.Equal(v.press(path+"/rotate-secret", "overlap", "9999999").status, http.StatusBadRequest)
}

func TestBC53_TestsCountNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	sub := s.subscribe("acme", "/hook", func(set *delivery.Settings) { set.DisableAfter = 3 })
	v := s.signedIn(operatorKey)
	path := endpointPath(sub.ID)
	body := hostile
	s.body.Store(&body)
	s.status.Store(500)
	for range 5 {
		p := v.press(path + "/test")
		s.is.Equal(p.status, http.StatusOK)
		v.in(p, "the endpoint answered 500 Internal Server Error", "<img src=x", "Content-Type: text/html", "no failure counted")
		s.is.True(!strings.Contains(p.body, "<img src=x"))
	}
	got, err := s.store.Subscription(s.ctx, sub.ID)
	s.is.NoErr(err)
	s.is.Equal(got.State, delivery.Active)
	s.is.Equal(got.Failures, 0)
	_, err = s.store.Pause(s.ctx, sub.ID, "")
	s.is.NoErr(err)
	s.status.Store(204)
	v.in(v.press(path+"/test"), "The endpoint is paused; a test is sent all the same", "delivered")
	s.is.Equal(s.requests.Load(), int64(6))
	v.has("audit", "test-subscription", "http_status")

	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	gone := s.subscribe("acme", "/gone", func(set *delivery.Settings) { set.URL = closed.URL })
	v.in(v.press(endpointPath(gone.ID)+"/test"), "the endpoint refused the connection", "For operators: ")
	tenant := s.signedIn(s.key("acme", keys.Write))
	p := tenant.press(endpointPath(gone.ID) + "/test")
	tenant.in(p, "the endpoint refused the connection")
	s.is.True(!strings.Contains(p.text(), "For operators"))
}

func TestBC51_OnlyDeadLettersAreRetried(t *testing.T) {
	t.Parallel()
	s := setup(t)
	x := s.scene()
	v := s.signedIn(operatorKey)
	for _, other := range []struct {
		sub *delivery.Subscription
		id  delivery.ID
		why string
	}{
		{x.well, x.delivered, "this one is delivered"}, {x.well, x.flying, "being sent at this moment"},
		{x.well, x.retrying, "attempted by itself"}, {x.held, x.waiting, "attempted by itself"},
	} {
		path := deliveryPath(other.sub.ID, other.id)
		before := s.state(other.sub, other.id)
		p := v.has(path, other.why)
		s.is.True(regexp.MustCompile(`<button class="main" disabled[^>]*>Retry`).MatchString(p.body))
		refused := v.press(path + "/retry")
		s.is.Equal(refused.status, http.StatusConflict)
		v.in(refused, "Only a dead letter can be retried")
		s.is.Equal(s.state(other.sub, other.id), before)
	}
	// Two presses at once make one.
	path := deliveryPath(x.flaky.ID, x.dead) + "/retry"
	form := map[string][]string{"token": {v.get("").token()}}
	var group sync.WaitGroup
	statuses := make([]int, 2)
	for i := range statuses {
		group.Go(func() { statuses[i] = v.send(path, form).status })
	}
	group.Wait()
	s.is.Equal(statuses[0]+statuses[1], http.StatusSeeOther+http.StatusConflict)
	s.is.Equal(one[int](s, "SELECT count(*) FROM postlane.revivals WHERE seq = $1", int64(x.dead)), 1)
	s.is.Equal(s.state(x.flaky, x.dead), delivery.Pending)
}

func TestBC56_RetriesAreOnRecord(t *testing.T) {
	t.Parallel()
	s := setup(t)
	sub := s.subscribe("acme", "/hook", dies)
	ids := s.enqueue("acme", "thing.done", "heals", "fails")
	s.settle(answered(500, "no"))
	key := s.key("acme", keys.Write)
	v := s.signedIn(key)
	for _, id := range ids {
		v.in(v.seen(v.press(deliveryPath(sub.ID, id)+"/retry")), "Retrying: it is pending again")
	}
	claims := s.claim(10)
	for i := range claims {
		verdict := succeed
		if claims[i].Asset == "fails" {
			verdict = answered(502, "still no")
		}
		s.settleClaims(claims[i:i+1], verdict)
	}
	p := v.has(deliveryPath(sub.ID, ids[0]), "delivered", "Retried by hand by acme, write (key_", "Attempt 1 · 500", "Attempt 1 · 200", "2 recorded in all")
	s.is.Equal(strings.Count(p.text(), "Retried by hand"), 1)
	v.has(deliveryPath(sub.ID, ids[1]), "dead", "Retried by hand by acme, write (key_", "Attempt 1 · 502", "still no", "attempts used up")
	v.has("audit", "retry-delivery", "acme, write", "ok", fmt.Sprintf("%v/%v", sub.ID, ids[1]))
}

func TestHeldStreams(t *testing.T) {
	t.Parallel()
	s := setup(t)
	sub := s.subscribe("acme", "/hook", holds)
	s.enqueue("acme", "thing.done", "a", "a", "b", "b", "c", "c")
	s.settle(answered(422, "no"))
	v := s.signedIn(s.key("acme", keys.Write))
	p := v.has("streams", "held", "attempts used up: http_status", "Release")
	heads := regexp.MustCompile(`action="(/console/endpoints/sub_\d+/deliveries/dlv_\d+)/release"`).FindAllStringSubmatch(p.body, -1)
	s.is.Equal(len(heads), 3)
	head := func(i int) delivery.ID {
		id, err := delivery.ParseID(heads[i][1][strings.LastIndex(heads[i][1], "/")+1:])
		s.is.NoErr(err)
		return id
	}
	v.has(heads[0][1], "dead, holds its stream", "It holds its stream", "Release the stream")

	v.in(v.seen(v.press(heads[0][1]+"/release", "next", Root+"streams")), "Released: the stream goes on.")
	s.is.Equal(s.state(sub, head(0)), delivery.Dead)
	s.is.Equal(v.press(heads[1][1]+"/discard").status, http.StatusBadRequest) // without saying why
	s.is.Equal(s.state(sub, head(1)), delivery.Dead)
	v.in(v.seen(v.press(heads[1][1]+"/discard", "reason", "posted twice", "next", Root+"streams")), "Discarded.")
	s.is.Equal(s.state(sub, head(1)), delivery.Discarded)
	v.has(heads[1][1], "discarded", "posted twice")
	v.in(v.seen(v.press(heads[2][1]+"/retry", "next", Root+"streams")), "Retrying", "No stream is held.")
	s.is.Equal(s.state(sub, head(2)), delivery.Pending)
	again := v.press(heads[0][1] + "/release")
	s.is.Equal(again.status, http.StatusConflict)
	v.in(again, "Holds no stream")
	s.is.Equal(len(s.claim(10)), 3) // all three go on
	v.has("audit", "release-delivery", "discard-delivery", "posted twice", "not_held")
}

func TestDeadLettersByReason(t *testing.T) {
	t.Parallel()
	s := setup(t)
	sub := s.subscribe("acme", "/hook", dies, func(set *delivery.Settings) { set.DisableAfter = delivery.Never })
	refusedIDs := s.enqueue("acme", "thing.done", names("r", 130)...)
	s.settle(refused)
	s.enqueue("acme", "thing.done", names("a", 3)...)
	s.settle(answered(500, "no"))
	v := s.signedIn(s.key("acme", keys.Write))
	v.has("dead", "133 dead", "attempts used up: connection_refused 130", "attempts used up: http_status 3")
	letters := "dead/" + sub.ID.String()
	p := v.has(letters+"?reason=attempts+used+up:+connection_refused", "130 letters", "r-0", "Next page")
	s.is.True(!strings.Contains(p.text(), "a-1"))
	v.has(p.next(), "r-50", "r-99")

	// A selection, with its count before.
	chosen := letters + "/retrying?letter=" + refusedIDs[3].String() + "&letter=" + refusedIDs[1].String()
	v.has(chosen, "Retry 2 dead letters?", refusedIDs[3].String())
	v.in(v.press(letters+"/retry", "letter", refusedIDs[3].String(), "letter", refusedIDs[1].String()), "2 retried")
	s.is.Equal(s.state(sub, refusedIDs[1]), delivery.Pending)
	s.is.Equal(s.state(sub, refusedIDs[2]), delivery.Dead)
	v.in(v.press(letters+"/retry", "letter", refusedIDs[3].String()), "0 retried", "1 could not be") // again

	// All of a reason, and no other.
	v.has(letters+"/retrying?reason=attempts+used+up:+connection_refused", "Retry 128 dead letters?")
	v.in(v.press(letters+"/retry", "reason", "attempts used up: connection_refused"), "128 retried")
	s.is.Equal(one[int](s, "SELECT count(*) FROM postlane.settled WHERE state = 'dead'"), 3)
	s.is.Equal(one[int](s, "SELECT count(*) FROM postlane.revivals WHERE revived_by LIKE 'acme, write (key_%'"), 130)
	v.has("audit", "retry-deliveries", "128 retried, 0 skipped")
	v.has("dead", "3 dead")
	s.is.Equal(v.press(letters+"/retry", "letter", "dlv_x").status, http.StatusNotFound)
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s := setup(t)
	v := s.signedIn(operatorKey)
	v.has("keys", "No key was made yet")
	p := v.press("keys/create", "name", "the <b>shop</b>", "whose", "tenant", "for", "acme", "scope", "read")
	s.is.Equal(p.status, http.StatusOK)
	text := regexp.MustCompile(`plk_[A-Z0-9]{40,}`).FindString(p.body)
	s.is.True(text != "")
	s.is.True(!strings.Contains(p.body, "<b>shop"))
	s.is.True(!strings.Contains(v.get("keys").body, text))
	tenant := s.signedIn(text)
	tenant.has("", "tenant acme, may only read")
	for _, wrong := range [][]string{
		{"name", "", "whose", "tenant", "for", "acme", "scope", "read"}, {"name", "x", "whose", "tenant", "scope", "read"},
		{"name", "x", "whose", "operator", "scope", "all"}, {"name", "x", "scope", "read"},
	} {
		s.is.Equal(v.press("keys/create", wrong...).status, http.StatusBadRequest)
	}
	id := one[string](s, "SELECT 'key_' || id FROM postlane.api_keys")
	v.has("keys", "active", "acme", id)
	v.in(v.seen(v.press("keys/"+id+"/revoke")), "Revoked.", "revoked")
	s.is.Equal(tenant.get("").status, http.StatusSeeOther)
	s.is.Equal(v.press("keys/key_7/revoke").status, http.StatusNotFound)
	v.has("audit", "create-key", "revoke-key", id)
}
