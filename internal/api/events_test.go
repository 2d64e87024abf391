package api_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/api"
)

// post sends one event of acme as text.
func (b *bundle) post(event string) answer {
	b.t.Helper()
	return b.do(b.acme, "POST", "/v1/events", `{"events":[`+event+`]}`)
}

// BC-45: an id is one event, however often and by however many it is sent.
func TestBC45_AnEventIDIsOneEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(nil)
	const event = `{"id":"e1","type":"invoice.paid","asset":"i1","payload":{"n":1}}`
	b.is.Equal(b.post(event).status, 201)
	again := b.post(event)
	b.is.Equal(again.status, 200)
	b.is.Equal(b.data(again)[0].(map[string]any)["duplicate"], true)

	statuses := make([]int, 20)
	var senders sync.WaitGroup
	for i := range statuses {
		senders.Go(func() { statuses[i] = b.post(`{"id":"e2","type":"invoice.paid","payload":{"n":1}}`).status })
	}
	senders.Wait()
	fresh := 0
	for _, status := range statuses {
		if status == 201 {
			fresh++
		} else if status != 200 {
			t.Errorf("answered %d", status)
		}
	}
	b.is.Equal(fresh, 1)
	for _, other := range []string{
		`{"id":"e1","type":"invoice.paid","asset":"i1","payload":{"n":2}}`, `{"id":"e1","type":"invoice.paid","asset":"i1","payload":{"n": 1}}`,
		`{"id":"e1","type":"invoice.void","asset":"i1","payload":{"n":1}}`, `{"id":"e1","type":"invoice.paid","payload":{"n":1}}`,
	} {
		got := b.post(other)
		text := b.refused("event_conflict", got)
		b.is.Equal(got.status, 409)
		b.is.True(strings.Contains(text, "e1"))
	}
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.events`), int64(2))
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.deliveries`), int64(2))
	// All or nothing: one conflict of many stores none.
	got := b.do(b.acme, "POST", "/v1/events", `{"events":[{"id":"e3","type":"a","payload":1},{"id":"e1","type":"a","payload":1}]}`)
	b.refused("event_conflict", got)
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.events`), int64(2))
	// The same id of another tenant is another event.
	b.is.Equal(b.do(b.other, "POST", "/v1/events", `{"events":[`+event+`]}`).status, 201)
}

func TestAnEventIsDeliveredAfterTheGivenTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(nil)
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	b.is.Equal(b.post(`{"type":"invoice.paid","payload":{},"deliver_after":"`+at.Format(time.RFC3339)+`"}`).status, 201)
	list := b.data(b.want(200, b.acme, "GET", sub+"/deliveries", nil))
	b.is.Equal(list[0].(map[string]any)["due_at"], at.Format(time.RFC3339))
	streams := b.data(b.want(200, b.acme, "GET", sub+"/streams", nil))
	b.is.Equal(streams[0].(map[string]any)["state"], "waiting")
}

// A payload is kept as it was written, to the byte.
func TestPayloadsAreKeptByteForByte(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stored := func(id string) string {
		return string(one[[]byte](b, `SELECT payload FROM postlane.events WHERE id = $1`, id))
	}
	for i, payload := range []string{
		`{"b":1, "a" : 1.0e+2,"a":2}`, `[1,2 ,3]`, `"é\u00e9<>&\/"`, `null`, `123456789012345678901234567890`, `{ }`, `true`, "{\n\t\"x\":\r\n1}",
	} {
		id := fmt.Sprintf("p%d", i)
		got := b.post(`{"id":"` + id + `","type":"a.b","payload":  ` + payload + `  }`)
		if got.status != 201 {
			t.Fatalf("%s: %s", payload, got.body)
		}
		b.is.Equal(stored(id), payload)
	}
	raw := "\x00\xff\xfe<xml/>\r\n"
	got := b.post(`{"id":"raw","type":"a.b","content_type":"application/xml","payload_base64":"` + base64.StdEncoding.EncodeToString([]byte(raw)) + `"}`)
	b.is.Equal(got.status, 201)
	b.is.Equal(stored("raw"), raw)
	shown := b.want(200, b.acme, "GET", "/v1/events/raw", nil)
	b.is.Equal(shown.object(b)["payload_bytes"], float64(len(raw)))
	b.is.Equal(shown.object(b)["content_type"], "application/xml")
	b.is.True(!strings.Contains(string(shown.body), "xml/>"))
	b.refused("not_found", b.do(b.other, "GET", "/v1/events/raw", nil))
	b.want(200, operatorKey, "GET", "/v1/events/raw?tenant=acme", nil)
}

func TestEventsAreChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for event, says := range map[string]string{
		`{"type":"a.b"}`: "events[0].payload", `{"type":"a.b","payload":1,"payload_base64":"AA=="}`: "payload_base64",
		`{"type":"a.b","payload_base64":"!"}`: "payload_base64", `{"type":"a b","payload":1}`: "events[0].type", `{"payload":1}`: "type",
		`{"type":"a.b","id":"a.b","payload":1}`: "events[0].id", `{"type":"a.b","deliver_after":"9999-01-01T00:00:00Z","payload":1}`: "events[0].deliver_after", `{"type":"a.b","payload":1,"when":1}`: "when",
		`{"type":"a.b","asset":"` + strings.Repeat("x", 600) + `","payload":1}`: "events[0].asset",
		`{"type":"a.b","asset":"\u0000","payload":1}`:                           "events[0].asset",
	} {
		text := b.refused("invalid", b.post(event))
		if !strings.Contains(text, says) {
			t.Errorf("%s does not say %s: %s", event, says, text)
		}
	}
	b.refused("invalid", b.do(b.acme, "POST", "/v1/events", `{"events":[]}`))
	b.refused("invalid", b.do(operatorKey, "POST", "/v1/events", `{"events":[{"type":"a","payload":1}]}`))
	b.is.Equal(b.do(operatorKey, "POST", "/v1/events", `{"tenant":"acme","events":[{"type":"a","payload":1}]}`).status, 201)
	many := strings.Repeat(`{"type":"a","payload":1},`, 1000)
	b.is.Equal(len(b.data(b.want(201, b.acme, "POST", "/v1/events", `{"events":[`+many[:len(many)-1]+`]}`))), 1000)
	b.refused("invalid", b.do(b.acme, "POST", "/v1/events", `{"events":[`+many+`{"type":"a","payload":1}]}`))
}

// What is too large is a 413 that names the limit.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	payload := func(n int) string { return `{"type":"a.b","payload":"` + strings.Repeat("x", n-2) + `"}` }
	b.is.Equal(b.post(payload(delivery.MaxPayload)).status, 201)
	for _, c := range []struct {
		path, body, limit string
	}{
		{"/v1/events", `{"events":[` + payload(delivery.MaxPayload+1) + `]}`, "4194304"},
		{"/v1/events", `{"events":[` + payload(delivery.MaxPayload) + `,` + payload(delivery.MaxPayload) + `]}`, "8388608"},
		{"/v1/subscriptions", `{"url":"` + strings.Repeat("x", 300<<10) + `"}`, "262144"},
	} {
		got := b.do(b.acme, "POST", c.path, c.body)
		b.is.Equal(got.status, 413)
		b.is.True(strings.Contains(b.refused("too_large", got), c.limit))
	}
}

// A key that asks too often waits; another does not wait for it.
func TestRatePerKey(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *api.Config) { c.Rate, c.Burst = 0.001, 3 })
	for range 3 {
		b.want(200, b.acme, "GET", "/v1/subscriptions", nil)
	}
	got := b.do(b.acme, "GET", "/v1/subscriptions", nil)
	b.refused("too_many_requests", got)
	b.is.Equal(got.status, 429)
	b.is.True(got.header.Get("Retry-After") != "" && got.header.Get("Retry-After") != "0")
	b.want(200, b.other, "GET", "/v1/subscriptions", nil)
	// An unknown key does not take from anybody's.
	b.is.Equal(b.do("plk_nonsense", "GET", "/v1/subscriptions", nil).status, 401)
}

// The database being away is a 503 and not a 500, and tells nothing of it.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	away, err := pgxpool.New(t.Context(), "postgres://nobody:hidden@127.0.0.1:1/nowhere?sslmode=disable") // connects when asked
	is.NoErr(err)
	defer away.Close()
	store, err := delivery.NewStore(away, delivery.StoreConfig{})
	is.NoErr(err)
	b := setup(t, func(c *api.Config) { c.Pool, c.Store = away, store })
	for _, r := range []route{{method: "GET", path: "/v1/subscriptions"}, {method: "GET", path: "/v1/subscriptions/sub_1"}, {method: "POST", path: "/v1/subscriptions/sub_1/pause"}} {
		for _, key := range []string{operatorKey, b.acme} {
			got := b.do(key, r.method, r.path, nil)
			is.Equal(got.status, 503)
			text := b.refused("unavailable", got)
			is.True(!strings.Contains(text, "127.0.0.1") && !strings.Contains(text, "nobody"))
			is.Equal(got.header.Get("Retry-After"), "1")
		}
	}
}

func TestAPayloadIsReadByItsTenantAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.want(201, b.acme, "POST", "/v1/events", `{"events":[{"id":"e1","type":"a","payload_base64":"AP8KPGI+","content_type":"text/html"}]}`)
	got := b.want(200, b.reader, "GET", "/v1/events/e1/payload", nil)
	b.is.Equal(string(got.body), "\x00\xff\n<b>")
	for name, value := range map[string]string{
		"Content-Type": "text/html", "Content-Security-Policy": "default-src 'none'; sandbox", "Content-Disposition": "attachment",
		"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
	} {
		b.is.Equal(got.header.Get(name), value)
	}
	b.refused("not_found", b.do(b.other, "GET", "/v1/events/e1/payload", nil))
	b.want(200, operatorKey, "GET", "/v1/events/e1/payload?tenant=acme", nil)
}
