package api_test

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/keys"
)

// route is an operation of the description, with the ids of acme's things in its path.
type route struct {
	id, method, path string
	operators        bool
}

// described reads every operation from what the API says of itself, so that one which is
// added later is walked too.
func (b *bundle) described(ids map[string]string) []route {
	b.t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string                `json:"operationId"`
			Security    []map[string][]string `json:"security"`
			Tags        []string              `json:"tags"`
		} `json:"paths"`
	}
	b.is.NoErr(json.Unmarshal(b.do("", "GET", "/openapi.json", nil).body, &doc))
	var routes []route
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		filled := path
		for name, id := range ids {
			filled = strings.ReplaceAll(filled, "{"+name+"}", id)
		}
		if strings.Contains(filled, "{") {
			b.t.Fatalf("the test knows no id for %s", path)
		}
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			op := doc.Paths[path][method]
			if len(op.Security) != 1 || op.Security[0]["key"] == nil {
				b.t.Fatalf("%s is described as one that needs no key", op.OperationID)
			}
			routes = append(routes, route{op.OperationID, strings.ToUpper(method), filled, slices.Contains(op.Tags, "Keys") || slices.Contains(op.Tags, "Server")})
		}
	}
	return routes
}

// bodies are valid ones, so that only the key decides.
var bodies = map[string]any{
	"create-subscription": map[string]any{"url": endpoint},
	"update-subscription": map[string]any{"description": "changed"},
	"discard-delivery":    map[string]any{"reason": "a test"},
	"retry-deliveries":    map[string]any{},
	"replay-events":       map[string]any{"id": "walked", "since": "2020-01-01T00:00:00Z"},
	"send-events":         map[string]any{"events": []any{map[string]any{"type": "a.b", "payload": 1}}},
	"put-event-type":      map[string]any{"schema": map[string]any{"type": "object"}},
	"create-key":          map[string]any{"name": "walked", "tenant": "acme", "scope": "read"},
}

// unscoped are those that have no thing in their path: with another tenant's key they
// are about that tenant's things.
var unscoped = map[string]int{"create-subscription": 201, "list-subscriptions": 200, "send-events": 201, "list-audit": 200, "list-event-types": 200, "put-event-type": 200}

// state is every row but the records of use: what a refused request must leave alone.
func (b *bundle) state() string {
	b.t.Helper()
	text := ""
	for _, table := range []string{"subscriptions", "subscription_secrets", "events", "deliveries", "leases", "settled", "attempts", "revivals", "replays", "replayed", "event_types"} {
		text += table + one[string](b, fmt.Sprintf(
			`SELECT coalesce(string_agg(t.ctid::text || t.xmin::text || t::text, E'\n' ORDER BY t.ctid), '') FROM postlane.%s t`, table))
	}
	return text + one[string](b, `SELECT string_agg(k.id::text || k.scope || coalesce(k.revoked_at::text, '-'), ' ' ORDER BY k.id) FROM postlane.api_keys k`)
}

// furnished is a subscription of acme with a dead delivery, and its ids.
func (b *bundle) furnished() map[string]string {
	b.t.Helper()
	sub := b.subscribe(nil)
	e := b.enqueue("a")[0]
	b.settle(delivery.Failed, b.claim(1)...)
	b.exec(`UPDATE postlane.subscriptions SET state = 'active'`)
	key, _, err := b.keys.Create(b.ctx, "somebody's", "acme", keys.Read)
	b.is.NoErr(err)
	_, err = b.store.PutEventType(b.ctx, delivery.EventType{Tenant: "acme", Name: "invoice.paid", Description: "acme's"})
	b.is.NoErr(err)
	return map[string]string{"id": b.id(sub).String(), "delivery_id": delivery.ID(e.Seq).String(), "event_id": e.ID, "key_id": key.ID, "name": "invoice.paid"}
}

// Every route of the description, with the keys that must not get through.
func TestWalkEveryRoute(t *testing.T) {
	t.Parallel()
	b := setup(t)
	routes := b.described(b.furnished())
	b.is.True(len(routes) >= 20)
	revokedKey, revoked, err := b.keys.Create(b.ctx, "revoked", "acme", keys.Write)
	b.is.NoErr(err)
	b.want(200, revoked, "GET", "/v1/subscriptions", nil)
	_, err = b.keys.Revoke(b.ctx, revokedKey.ID)
	b.is.NoErr(err)
	last := "0"
	if strings.HasSuffix(b.acme, last) {
		last = "1"
	}
	forged := b.acme[:len(b.acme)-1] + last

	before := b.state()
	unchanged := func(r route, key string) {
		t.Helper()
		if b.state() != before {
			t.Fatalf("%s with %s changed something", r.id, key)
		}
	}
	for _, r := range routes {
		body := bodies[r.id]
		for name, key := range map[string]string{"no": "", "a revoked": revoked, "a forged": forged, "an empty": " "} {
			got := b.do(key, r.method, r.path, body)
			b.refused("unauthorized", got)
			b.is.Equal(got.status, 401)
			if !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s with %s key: no WWW-Authenticate", r.id, name)
			}
			unchanged(r, name)
		}
		readonly := b.do(b.reader, r.method, r.path, body)
		switch {
		case r.method != http.MethodGet:
			b.refused("read_only_key", readonly)
			b.is.Equal(readonly.status, 403)
		case r.operators:
			b.refused("operator_only", readonly)
		default:
			b.is.Equal(readonly.status, 200)
		}
		unchanged(r, "a read-only key")

		if status, ok := unscoped[r.id]; ok {
			got := b.want(status, b.other, r.method, r.path, body)
			if r.method == http.MethodGet {
				b.is.True(!strings.Contains(string(got.body), "acme"))
			}
			before = b.state()
			continue
		}
		strange := b.do(b.other, r.method, r.path, body)
		if r.operators {
			b.refused("operator_only", strange)
		} else {
			b.refused("not_found", strange)
			b.is.Equal(strange.status, 404)
		}
		unchanged(r, "another tenant's key")
	}
}

// What another tenant has is answered byte for byte as what nobody has: status, headers
// and body.
func TestForeignIsAsMissing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.furnished()
	foreign := map[string]answer{}
	routes := b.described(ids)
	for _, r := range routes {
		foreign[r.id] = b.do(b.other, r.method, r.path, bodies[r.id])
	}
	b.exec(`TRUNCATE postlane.subscriptions, postlane.subscription_secrets, postlane.events, postlane.deliveries, postlane.settled, postlane.attempts, postlane.event_types`)
	for _, r := range routes {
		if _, ok := unscoped[r.id]; ok {
			continue
		}
		is := is.New(t)
		gone := b.do(b.other, r.method, r.path, bodies[r.id])
		is.Equal(gone.status, foreign[r.id].status)
		is.Equal(string(gone.body), string(foreign[r.id].body))
		is.Equal(gone.header, foreign[r.id].header)
	}
}

// BC-55: nothing changes by GET or HEAD, whatever the path.
func TestBC55_GetAndHeadChangeNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	routes := b.described(b.furnished())
	before := b.state()
	gets := map[string]bool{}
	for _, r := range routes {
		if r.method == http.MethodGet {
			gets[r.path] = true
		}
	}
	audited := one[int64](b, `SELECT count(*) FROM postlane.audit`)
	for _, r := range routes {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			for _, key := range []string{b.acme, operatorKey} {
				got := b.do(key, method, r.path, bodies[r.id])
				if !gets[r.path] && got.status != 404 && got.status != 405 {
					t.Errorf("%s %s answers %d", method, r.path, got.status)
				}
				if b.state() != before {
					t.Fatalf("%s %s changed something", method, r.path)
				}
			}
		}
	}
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.audit`), audited)
}

// Whoever tries wrong keys waits soon; whoever has a right one does not, also behind the
// same proxy.
func TestWrongKeysAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.address = "192.0.2.7:1024"
	b.want(200, b.acme, "GET", "/v1/subscriptions", nil)
	wrong := "plk_" + strings.Repeat("A", 52)
	wrong += fmt.Sprintf("%08X", crc32.ChecksumIEEE([]byte(wrong))) // well-formed
	for range keys.WrongKeys {
		b.refused("unauthorized", b.do(wrong, "GET", "/v1/subscriptions", nil))
	}
	limited := b.do(wrong, "GET", "/v1/subscriptions", nil)
	b.refused("too_many_requests", limited)
	b.is.True(limited.header.Get("Retry-After") != "")
	b.want(200, b.acme, "GET", "/v1/subscriptions", nil)
	b.refused("too_many_requests", b.do(operatorKey, "GET", "/v1/subscriptions", nil)) // a person may have chosen it
	b.address = "192.0.2.8:1024"
	b.want(200, operatorKey, "GET", "/v1/subscriptions", nil)
}

// A revocation holds from the moment that it is answered.
func TestRevocationHoldsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.want(201, operatorKey, "POST", "/v1/keys", map[string]any{"name": "short-lived", "tenant": "acme", "scope": "write"}).object(b)
	key := made["key"].(string)
	b.is.True(strings.HasPrefix(key, "plk_"))
	b.want(200, key, "GET", "/v1/subscriptions", nil)
	listed := b.want(200, operatorKey, "GET", "/v1/keys?tenant=acme", nil)
	b.is.True(!strings.Contains(string(listed.body), key))
	b.want(200, operatorKey, "POST", "/v1/keys/"+made["id"].(string)+"/revoke", nil)
	b.refused("unauthorized", b.do(key, "GET", "/v1/subscriptions", nil))
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.api_keys k WHERE k::text LIKE '%' || $1 || '%'`, key[8:]), int64(0))
}

func TestLastUseIsNotedOnceAMinute(t *testing.T) {
	t.Parallel()
	b := setup(t)
	used := func() string {
		return one[string](b, `SELECT coalesce(last_used_at::text, 'never') FROM postlane.api_keys WHERE scope = 'read'`)
	}
	b.is.Equal(used(), "never")
	b.want(200, b.reader, "GET", "/v1/subscriptions", nil)
	first := used()
	b.is.True(first != "never")
	b.want(200, b.reader, "GET", "/v1/subscriptions", nil)
	b.is.Equal(used(), first)
	b.exec(`UPDATE postlane.api_keys SET last_used_at = now() - interval '61 seconds'`)
	b.want(200, b.reader, "GET", "/v1/subscriptions", nil)
	b.is.True(one[bool](b, `SELECT last_used_at > now() - interval '30 seconds' FROM postlane.api_keys WHERE scope = 'read'`))
}

func TestOperatorNamesATenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.refused("invalid", b.do(operatorKey, "POST", "/v1/subscriptions", map[string]any{"url": endpoint}))
	b.want(201, operatorKey, "POST", "/v1/subscriptions", map[string]any{"url": endpoint, "tenant": "acme"})
	b.want(201, operatorKey, "POST", "/v1/subscriptions", map[string]any{"url": endpoint, "tenant": "other"})
	b.is.Equal(len(b.data(b.want(200, operatorKey, "GET", "/v1/subscriptions", nil))), 2)
	b.is.Equal(len(b.data(b.want(200, operatorKey, "GET", "/v1/subscriptions?tenant=acme", nil))), 1)
	b.is.Equal(len(b.data(b.want(200, b.acme, "GET", "/v1/subscriptions", nil))), 1)
	// A tenant may name itself and nobody else.
	b.want(200, b.acme, "GET", "/v1/subscriptions?tenant=acme", nil)
	b.refused("not_found", b.do(b.acme, "GET", "/v1/subscriptions?tenant=other", nil))
	b.refused("not_found", b.do(b.acme, "POST", "/v1/subscriptions", map[string]any{"url": endpoint, "tenant": "other"}))
}
