package console

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/postlane-go/postlane/delivery"
)

// Every action, as a person does it.
func TestEveryActionInABrowser(t *testing.T) {
	t.Parallel()
	s := setup(t)
	held := s.subscribe("acme", "/held", holds, func(set *delivery.Settings) { set.EventTypes = []string{"held.*"} })
	dead := s.subscribe("acme", "/dead", dies, func(set *delivery.Settings) { set.EventTypes, set.DisableAfter = []string{"dead.*"}, delivery.Never })
	heads := s.enqueue("acme", "held.x", "a", "b", "c")
	letters := s.enqueue("acme", "dead.x", names("d", 5)...)
	s.settle(answered(500, hostile))
	body := hostile
	s.body.Store(&body)
	s.status.Store(500)

	b := s.browser()
	b.see(endpointPath(dead.ID)) // leads to the form, and back
	b.run(chromedp.SendKeys(chromedp.CSS("#key"), "wrong"))
	b.pressed("button.main", 401)
	b.says("There is no such key")
	b.forget("status of 401")
	b.run(chromedp.SendKeys(chromedp.CSS("#key"), operatorKey))
	b.press("button.main")
	b.says("/dead", "Settings")
	path := endpointPath(dead.ID)

	b.press("form[action$='/test'] button")
	b.says("the endpoint answered 500 Internal Server Error", "<img src=x onerror=")
	b.accessible("after a test")
	b.see(path)
	b.fill("#overlap", "3600")
	b.press("form[action$='/rotate-secret'] button")
	b.says("The new signing secret", "whsec_", "for 1 h")
	b.accessible("after a rotation")
	b.picture("endpoint-rotated-light")
	b.see(path)
	b.fill("#reason", "a pause")
	b.press("form[action$='/pause'] button")
	b.says("Paused.", "a pause")
	b.press("form[action$='/enable'] button")
	b.says("Enabled.")

	// One letter by its page.
	b.see(deliveryPath(dead.ID, letters[0]))
	b.press("form[action$='/retry'] button")
	b.says("Retrying: it is pending again", "Retried by hand by operator")
	s.is.True(value[bool](b, "document.querySelector(\"form[action$='/retry'] button\").disabled"))
	b.see(deliveryPath(dead.ID, letters[1]))
	b.fill("#reason", "not wanted")
	b.press("form[action$='/discard'] button")
	b.says("Discarded.", "not wanted")

	// A selection, which is counted as it grows.
	b.see("dead")
	b.press("tbody th a[href*='" + dead.ID.String() + "']")
	b.run(chromedp.WaitVisible(chromedp.CSS("button[data-one]")))
	button := func() string { return value[string](b, "document.querySelector('button[data-one]').textContent") }
	s.is.True(value[bool](b, "document.querySelector('button[data-one]').disabled"))
	b.run(chromedp.Click(chromedp.CSS("tbody tr:nth-child(1) input")))
	s.is.Equal(button(), "Retry 1 letter…")
	b.run(chromedp.Click(chromedp.CSS("tbody tr:nth-child(2) input")))
	s.is.Equal(button(), "Retry 2 letters…")
	b.run(chromedp.Click(chromedp.CSS("[data-all]")))
	s.is.Equal(button(), "Retry 3 letters…")
	b.run(chromedp.Click(chromedp.CSS("tbody tr:nth-child(3) input")))
	b.press("button[data-one]")
	b.says("Retry 2 dead letters?")
	b.press("button.main")
	b.says("2 retried")
	b.see("dead/" + dead.ID.String() + "/retrying?reason=attempts+used+up:+http_status")
	b.says("Retry 1 dead letter?")
	b.press("button.main")
	b.says("1 retried")

	// Streams.
	b.see("streams")
	b.press("form[action$='" + heads[0].String() + "/retry'] button")
	b.says("Retrying")
	b.press("form[action$='" + heads[1].String() + "/release'] button")
	b.says("Released")
	b.run(chromedp.Click(chromedp.CSS("details.menu summary")))
	b.accessible("streams, with a menu open")
	b.run(chromedp.SendKeys(chromedp.CSS("details.menu input[name=reason]"), "posted twice"))
	b.press("form[action$='" + heads[2].String() + "/discard'] button")
	b.says("Discarded", "No stream is held")
	s.is.Equal(s.state(held, heads[2]), delivery.Discarded)

	// Keys.
	b.see("keys")
	b.run(chromedp.SendKeys(chromedp.CSS("#name"), "a <i>shop</i>"), chromedp.SendKeys(chromedp.CSS("#for"), "acme"))
	b.press("form[action$='/create'] button")
	b.says("The new key, a <i>shop</i>", "plk_")
	b.accessible("after making a key")
	b.press("form[action$='/revoke'] button")
	b.says("Revoked.")

	// An endpoint, made and changed.
	b.see("endpoints/new")
	b.fill("#for", "acme")
	b.fill("#url", s.endpoint+"/made")
	b.press("form[action$='/create'] button.main")
	b.says("this is its signing secret", "whsec_")
	b.accessible("after making an endpoint")
	made := one[int64](s, "SELECT id FROM postlane.subscriptions WHERE url LIKE '%/made'")
	b.see(endpointPath(delivery.SubscriptionID(made)) + "/editing")
	b.fill("#description", "for <b>us</b>")
	b.press("form[action$='/update'] button.main")
	b.says("Changed.", "for <b>us</b>")

	// An event type, made, changed and deleted.
	b.see("event-types?tenant=acme")
	b.press("a.main")
	b.fill("#name", "order.paid")
	b.fill("#schema", `{"type": "objekt"}`)
	b.pressed("form[action*='/create'] button.main", 400)
	b.forget("status of 400")
	b.says("Schema cannot be used")
	s.is.Equal(value[string](b, "document.querySelector('[aria-invalid]').id"), "schema")
	b.accessible("after a schema that is none")
	b.picture("event-type-refused-light")
	b.fill("#schema", "{\n  \"type\": \"object\"\n}")
	b.run(chromedp.Click(chromedp.CSS("input[name=validate]")))
	b.press("form[action*='/create'] button.main")
	b.says("Written.", "refuses those that do not meet the schema", `"type": "object"`)
	b.press("a[href*='/editing']")
	b.fill("#description", "An <i>order</i> is paid")
	b.press("form[action*='/update'] button.main")
	b.says("Written.", "An <i>order</i> is paid")
	s.is.Equal(one[string](s, "SELECT schema FROM postlane.event_types"), "{\n  \"type\": \"object\"\n}")
	b.press("a[href*='/deleting']")
	b.run(chromedp.Click(chromedp.CSS("input[name=sure]")))
	b.press("button.bad")
	b.says("Deleted.", "No event type is described")

	// Messages.
	s.parked(2, "a", "b")
	b.see("outbox")
	b.press("button[aria-label='Retry m0']")
	b.says("Retried: 1 message.", "1 parked")
	b.press("form:has(input[name=parked]) button")
	b.says("Retried: 1 message.", "No message is parked.")

	// Deleting, which asks first.
	b.see(path)
	b.press("a[href$='/deleting']")
	b.says("Delete this endpoint?")
	b.run(chromedp.Click(chromedp.CSS("input[name=sure]")))
	b.press("button.bad")
	b.says("Deleted.")

	// Colours, and the way out.
	ground := func() string { return value[string](b, "getComputedStyle(document.body).backgroundColor") }
	light := ground()
	b.press("button[value=dark]")
	dark := ground()
	s.is.True(light != dark)
	b.see("audit")
	s.is.Equal(ground(), dark) // remembered
	b.says("delete-subscription", "create-key", "retry-deliveries", "rotate-secret", "create-subscription", "retry-messages", "put-event-type", "delete-event-type")
	b.press("button[value=auto]")
	s.is.Equal(ground(), light)
	b.press("form[action$='/sign-out'] button")
	b.says("Sign in")
	b.clean("actions")
	s.is.True(!strings.Contains(value[string](b, "document.title"), "owned"))
}

func TestBC54_AHostileAnswerIsTextInABrowser(t *testing.T) {
	t.Parallel()
	s := setup(t)
	x := s.scene()
	b := s.browser()
	b.signIn(operatorKey)
	b.see(deliveryPath(x.flaky.ID, x.dead))
	b.says(`<img src=x onerror="document.title='owned'"></script></textarea></pre><script>document.title='owned'</script>`, "Server: <b>bold</b>")
	s.is.Equal(value[int](b, "document.querySelectorAll('main img, main script, main b').length"), 0)
	s.is.Equal(value[string](b, "document.title"), "Delivery "+x.dead.String()+" · Postlane")
	b.clean("a hostile answer")
}

// New deliveries come by themselves, and a session that ended is told.
func TestLiveViewInABrowser(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.subscribe("acme", "/hook")
	s.enqueue("acme", "thing.done", "a")
	b := s.browser()
	b.signIn(operatorKey)
	b.see("deliveries")
	b.run(chromedp.Click(chromedp.CSS(".live button")))
	s.is.Equal(value[string](b, "document.querySelector('.live button').getAttribute('aria-pressed')"), "true")
	id := s.enqueue("acme", "thing.new", "b")[0]
	b.within(`[...document.querySelectorAll("tr.new code")].some(c => c.textContent === "` + id.String() + `")`)
	b.within(`document.querySelector(".live [role=status]").textContent === "1 new delivery"`)
	s.settle(succeed)
	b.within(`document.querySelectorAll(".pill.good").length === 2`)
	b.says("delivered")
	s.exec("DELETE FROM postlane.console_sessions")
	b.within(`document.querySelector(".live [role=status]").textContent.includes("The session is over")`)
	b.clean("live view")
	// Where it was switched on it is on again.
	b.see("sign-in")
	b.signIn(operatorKey)
	b.see("deliveries")
	s.is.Equal(value[string](b, "document.querySelector('.live button').getAttribute('aria-pressed')"), "true")
	b.run(chromedp.Click(chromedp.CSS(".live button")))
	s.is.Equal(value[string](b, "document.querySelector('.live button').getAttribute('aria-pressed')"), "false")
}

func TestTheKeyboardIsEnough(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.scene()
	b := s.browser()
	b.see("sign-in")
	b.run(chromedp.WaitVisible(chromedp.CSS("#key:focus"))) // the browser does it after the page has loaded
	b.run(chromedp.KeyEvent(operatorKey))
	_, err := chromedp.RunResponse(b.tab, chromedp.KeyEvent("\r"))
	s.is.NoErr(err)
	b.run(chromedp.KeyEvent("\t"))
	s.is.Equal(value[string](b, "document.activeElement.textContent"), "Skip to the content")
	s.is.True(value[bool](b, "document.activeElement.getBoundingClientRect().top >= 0")) // and is seen
	b.run(chromedp.KeyEvent("\r"), chromedp.KeyEvent("\t"))
	s.is.True(value[bool](b, "document.activeElement.closest('main') !== null"))
	s.is.True(value[string](b, "getComputedStyle(document.activeElement).outlineStyle") != "none")
	// Everything that can be pressed can be reached.
	s.is.Equal(value[int](b, `[...document.querySelectorAll("a, button, input, select, summary")].filter(e => e.tabIndex < 0 && e.offsetParent).length`), 0)
}

func TestAnEmptyDatabaseInABrowser(t *testing.T) {
	t.Parallel()
	s := setup(t)
	b := s.browser()
	b.signIn(operatorKey)
	for path, says := range map[string]string{
		"": "Nothing. Every endpoint is active", "endpoints": "There is no endpoint yet", "deliveries": "There is no delivery yet", "dead": "No dead letters",
		"streams": "No stream is held", "outbox": "No message is parked.", "keys": "No key was made yet", "audit": "Nothing was changed yet", "nowhere": "There is no such page",
	} {
		b.see(path)
		b.says(says)
		b.accessible("empty " + path)
		b.fits("empty " + path)
		if path == "nowhere" {
			b.forget("status of 404")
		}
		b.clean("empty " + path)
		b.picture("empty-" + path)
	}
}

func TestAHundredThousandDeliveriesInABrowser(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("loads 100,000 deliveries")
	}
	s := setup(t)
	sub := s.crowd(100_000)
	b := s.browser()
	b.signIn(operatorKey)
	for _, path := range []string{"", "endpoints", endpointPath(sub), "deliveries", "deliveries?state=dead&endpoint=" + sub.String(), "dead", "streams"} {
		b.see(path)
		b.fits("many " + path)
		b.clean("many " + path)
		if rows := value[int](b, "document.querySelectorAll('tbody tr').length"); rows > 500 {
			t.Errorf("%s has %d rows", path, rows)
		}
	}
	b.see("")
	b.says("10,000+")
	b.see("deliveries")
	first := value[string](b, "document.querySelector('tr[data-key]').dataset.key")
	b.press("a[rel=next]")
	s.is.True(value[string](b, "document.querySelector('tr[data-key]').dataset.key") != first)

	// What is of another day has its date.
	s.exec("UPDATE postlane.deliveries SET created_at = created_at - interval '1 day'")
	b.see("deliveries")
	b.fits("deliveries of yesterday")
}

// The picture in the documentation, where somebody wants a new one.
func TestPictureForTheDocumentation(t *testing.T) {
	if os.Getenv("POSTLANE_TEST_PICTURES") == "" {
		t.Skip("POSTLANE_TEST_PICTURES is not set")
	}
	t.Parallel()
	s := setup(t)
	s.scene()
	b := s.browser()
	b.size(1280, 1000)
	b.signIn(operatorKey)
	b.scheme("light")
	b.see("?tenant=acme")
	b.picture("documentation")
}

// within waits until an expression is true in the page.
func (b *browser) within(expression string) {
	b.t.Helper()
	if _, err := chromedp.Run(b.tab, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience/2))); err != nil {
		b.t.Fatalf("%s: never: %v\n%s", expression, err, b.text())
	}
}
