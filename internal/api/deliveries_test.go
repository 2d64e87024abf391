package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/retry"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/keys"
)

// everyState leaves a delivery of each state, and returns their ids.
func (b *bundle) everyState(path string) map[string]string {
	b.t.Helper()
	ids := map[string]string{}
	id := func(e delivery.Enqueued) string { return delivery.ID(e.Seq).String() }
	e := b.enqueue("delivered")
	b.settle(delivery.Succeeded, b.claim(1)...)
	ids["delivered"] = id(e[0])
	e = b.enqueue("dead")
	b.settle(delivery.Failed, b.claim(1)...)
	ids["dead"] = id(e[0])
	e = b.enqueue("discarded")
	b.settle(delivery.Failed, b.claim(1)...)
	b.is.NoErr(b.store.Discard(b.ctx, b.id(path), delivery.ID(e[0].Seq), "a test"))
	ids["discarded"] = id(e[0])
	e = b.enqueue("delivering")
	b.claim(1)
	ids["delivering"] = id(e[0])
	ids["pending"] = id(b.enqueue("pending")[0])
	return ids
}

// BC-50: one state, two, none, and one that there is not.
func TestBC50_FilterByStates(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.subscribe(map[string]any{"max_attempts": 1})
	b.exec(`UPDATE postlane.subscriptions SET disable_after = 0`)
	ids := b.everyState(path)
	b.exec(`UPDATE postlane.subscriptions SET state = 'active'`)
	names := []string{"pending", "delivering", "delivered", "dead", "discarded"}
	list := func(filter string) map[string]string {
		got := map[string]string{}
		for _, item := range b.data(b.want(200, b.acme, "GET", path+"/deliveries?"+filter, nil)) {
			v := item.(map[string]any)
			got[v["state"].(string)] = v["id"].(string)
		}
		return got
	}
	b.is.Equal(list(""), ids)
	for bits := 1; bits < 1<<len(names); bits++ { // every union
		var states []string
		want := map[string]string{}
		for i, name := range names {
			if bits&(1<<i) != 0 {
				states = append(states, name)
				want[name] = ids[name]
			}
		}
		for _, order := range []string{"newest", "oldest"} {
			b.is.Equal(list("order="+order+"&state="+strings.Join(states, ",")), want)
		}
	}
	b.is.Equal(list("state=dead&asset=dead"), map[string]string{"dead": ids["dead"]})
	b.is.Equal(list("state=dead&asset=delivered"), map[string]string{})
	b.is.Equal(list("asset="), map[string]string{})
	b.is.Equal(list("event_type=other"), map[string]string{})
	b.is.Equal(list("since=2999-01-01T00:00:00Z"), map[string]string{})
	b.is.Equal(list("until=2999-01-01T00:00:00Z"), ids)
	text := b.refused("invalid", b.do(b.acme, "GET", path+"/deliveries?state=dead,lost", nil))
	b.is.True(strings.Contains(text, "lost"))
}

// BC-49, BC-57: what is not there yet is null, not a failure and not the year 1.
func TestBC49_BC57_WhatIsNotThereIsNull(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.subscribe(nil)
	fresh := b.want(200, b.acme, "GET", path, nil).object(b)
	for _, field := range []string{"description", "state_reason", "max_in_flight", "public_key"} {
		b.is.Equal(fresh[field], nil)
	}
	id := delivery.ID(b.enqueue("")[0].Seq)
	untried := b.want(200, b.acme, "GET", path+"/deliveries/"+id.String(), nil).object(b)
	for _, field := range []string{"due_at", "settled_at", "reason", "asset"} {
		b.is.Equal(untried[field], nil)
	}
	b.is.Equal(untried["attempts_made"], []any{})
	b.is.Equal(untried["retries"], []any{})
	stream := b.data(b.want(200, b.acme, "GET", path+"/streams", nil))[0].(map[string]any)
	b.is.Equal(stream["asset"], nil)
	b.is.Equal(stream["in_flight_ms"], nil)
	b.is.Equal(stream["state"], "waiting")

	claims := b.claim(1)
	_, err := b.store.Settle(b.ctx, []delivery.Result{{
		Claim: &claims[0], Verdict: delivery.Failed, Gone: true, Attempt: delivery.AttemptEvidence{Started: time.Now(), Outcome: "connection_refused"},
	}})
	b.is.NoErr(err)
	refused := b.want(200, b.acme, "GET", path+"/deliveries/"+id.String(), nil)
	attempt := refused.object(b)["attempts_made"].([]any)[0].(map[string]any)
	for _, field := range []string{"status", "answer", "retried_at", "retried_by"} {
		b.is.Equal(attempt[field], nil)
	}
	b.is.Equal(attempt["outcome"], "connection_refused")
	for _, at := range []string{path, "/v1/subscriptions", path + "/deliveries", path + "/deliveries/" + id.String(), path + "/streams", "/v1/audit"} {
		text := string(b.want(200, b.acme, "GET", at, nil).body)
		b.is.True(!strings.Contains(text, "0001-01-01") && !strings.Contains(text, "1970-01-01"))
	}
	key := b.data(b.want(200, operatorKey, "GET", "/v1/keys?tenant=other", nil))[0].(map[string]any)
	b.is.Equal(key["last_used_at"], nil)
	b.is.Equal(key["revoked_at"], nil)
	created := untried["created_at"].(string)
	b.is.True(strings.HasSuffix(created, "Z"))
}

// BC-51: only a dead letter is retried, and of two presses one counts.
func TestBC51_OnlyDeadLettersAreRetried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.subscribe(map[string]any{"max_attempts": 1})
	ids := b.everyState(path)
	b.exec(`UPDATE postlane.subscriptions SET state = 'active'`)
	for _, state := range []string{"pending", "delivering", "delivered", "discarded"} {
		got := b.do(b.acme, "POST", path+"/deliveries/"+ids[state]+"/retry", nil)
		b.refused("not_dead", got)
		b.is.Equal(got.status, 409)
	}
	var statuses sync.Map
	var presses sync.WaitGroup
	for i := range 2 {
		presses.Go(func() {
			statuses.Store(i, b.do(b.acme, "POST", path+"/deliveries/"+ids["dead"]+"/retry", nil).status)
		})
	}
	presses.Wait()
	sum := 0
	statuses.Range(func(_, v any) bool { sum += v.(int); return true })
	b.is.Equal(sum, 200+409)
	b.is.Equal(one[int64](b, `SELECT count(*) FROM postlane.revivals`), int64(1))
	b.refused("not_found", b.do(b.acme, "POST", path+"/deliveries/dlv_999999/retry", nil))
	b.refused("not_found", b.do(b.acme, "POST", path+"/deliveries/nonsense/retry", nil))
	// The id of another subscription of the same tenant is not that subscription's.
	b.refused("not_found", b.do(b.acme, "POST", b.subscribe(nil)+"/deliveries/"+ids["pending"]+"/retry", nil))
}

// A held stream is shown, released, or its head discarded.
func TestHeldStreams(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.subscribe(map[string]any{"on_dead": "hold"})
	e := b.enqueue("a", "a", "b", "b", "")
	b.settle(delivery.Failed, b.claim(10)...)
	b.exec(`UPDATE postlane.subscriptions SET state = 'active'`)
	streams := b.data(b.want(200, b.acme, "GET", path+"/streams", nil))
	b.is.Equal(len(streams), 3)
	b.is.Equal(streams[0].(map[string]any)["asset"], nil)
	held := streams[1].(map[string]any)
	b.is.Equal([]any{held["asset"], held["state"], held["depth"]}, []any{"a", "held", 2.0})
	b.is.True(strings.Contains(held["reason"].(string), "410"))
	b.is.Equal(len(b.claim(10)), 0)
	first, second := delivery.ID(e[0].Seq).String(), delivery.ID(e[2].Seq).String()
	b.is.Equal(b.want(200, b.acme, "POST", path+"/deliveries/"+first+"/release", nil).object(b)["state"], "dead")
	b.refused("not_held", b.do(b.acme, "POST", path+"/deliveries/"+first+"/release", nil))
	b.refused("invalid", b.do(b.acme, "POST", path+"/deliveries/"+second+"/discard", map[string]any{}))
	b.is.Equal(b.want(200, b.acme, "POST", path+"/deliveries/"+second+"/discard", map[string]any{"reason": "obsolete"}).object(b)["reason"], "obsolete")
	claims := b.claim(10)
	b.is.Equal(len(claims), 2)
	b.refused("in_flight", b.do(b.acme, "POST", path+"/deliveries/"+claims[0].ID().String()+"/discard", map[string]any{"reason": "x"}))
	var ids []string
	cursor := ""
	for {
		v := b.want(200, b.acme, "GET", path+"/streams?limit=1&cursor="+cursor, nil).object(b)
		for _, s := range v["data"].([]any) {
			ids = append(ids, fmt.Sprint(s.(map[string]any)["asset"]))
		}
		var more bool
		if cursor, more = v["next_cursor"].(string); !more {
			break
		}
	}
	b.is.Equal(ids, []string{"<nil>", "a", "b"})
}

// dispatch runs a dispatcher until the returned function is called.
func (b *bundle) dispatch() (stop func()) {
	b.t.Helper()
	g, err := guard.New(guard.Policy{Development: true})
	b.is.NoErr(err)
	snd, err := sender.New(sender.Config{Guard: g, Timeout: 20 * time.Second})
	b.is.NoErr(err)
	schedule, err := retry.NewSchedule(0, 100*time.Millisecond)
	b.is.NoErr(err)
	d, err := delivery.New(delivery.Config{
		Store: b.store, Sender: snd, Poll: 20 * time.Millisecond, Reclaim: 50 * time.Millisecond, Schedule: schedule,
		Logger: slog.New(slog.DiscardHandler),
	})
	b.is.NoErr(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		is.New(b.t).NoErr(<-done)
		snd.Close()
	})
}

// until waits until a delivery is in a state, and returns it.
func (b *bundle) until(path, state string) map[string]any {
	b.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for {
		v := b.want(200, b.acme, "GET", path, nil).object(b)
		if v["state"] == state {
			return v
		}
		select {
		case <-tick.C:
		case <-deadline:
			b.t.Fatalf("%s is %v and not %s", path, v["state"], state)
		}
	}
}

// BC-56: a press leaves a record: who, when, what was asked for and what came of it, and
// the attempts that followed can be told from those before.
func TestBC56_ARetryIsOnRecord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var mu sync.Mutex
	healed := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if !healed[r.Header.Get("Postlane-Asset")] {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	path := b.subscribe(map[string]any{"url": server.URL, "max_attempts": 1})
	e := b.enqueue("heals", "stays")
	stop := b.dispatch()
	defer stop()
	heals, stays := path+"/deliveries/"+delivery.ID(e[0].Seq).String(), path+"/deliveries/"+delivery.ID(e[1].Seq).String()
	b.until(heals, "dead")
	b.until(stays, "dead")
	mu.Lock()
	healed["heals"] = true
	mu.Unlock()
	_, presser, err := b.keys.Create(b.ctx, "on call", "acme", keys.Write)
	b.is.NoErr(err)
	// The answer is pending or later: the dispatcher may be quicker than the look at it.
	b.want(200, presser, "POST", heals+"/retry", nil)
	b.want(200, presser, "POST", stays+"/retry", nil)
	for at, want := range map[string]struct {
		state  string
		status float64
	}{heals: {"delivered", 200}, stays: {"dead", 500}} {
		v := b.until(at, want.state)
		for len(v["attempts_made"].([]any)) < 2 { // dead before the press, too
			v = b.until(at, want.state)
		}
		made := v["attempts_made"].([]any)
		b.is.Equal(len(made), 2)
		first, second := made[0].(map[string]any), made[1].(map[string]any)
		b.is.Equal([]any{first["manual"], first["retried_by"], first["retried_at"], first["status"]}, []any{false, nil, nil, 500.0})
		b.is.Equal(second["manual"], true)
		b.is.True(strings.HasPrefix(second["retried_by"].(string), "on call (key_"))
		b.is.True(second["retried_at"] != nil)
		b.is.Equal(second["status"], want.status)
		b.is.Equal(second["number"], 1.0)
		b.is.Equal(len(v["retries"].([]any)), 1)
	}
	stop()
	b.refused("not_dead", b.do(presser, "POST", heals+"/retry", nil))
	entries := b.data(b.want(200, b.acme, "GET", "/v1/audit?limit=3", nil))
	var told []string
	for _, item := range entries {
		v := item.(map[string]any)
		b.is.Equal(v["actor_name"], "on call")
		told = append(told, fmt.Sprint(v["action"], " ", v["outcome"], " ", v["status"]))
	}
	b.is.Equal(told, []string{"retry-delivery not_dead 409", "retry-delivery ok 200", "retry-delivery ok 200"})
}

// BC-52: a deletion with work left neither sends more nor trips over anything.
func TestBC52_DeleteWithWorkLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, release := make(chan struct{}, 10), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	}))
	defer server.Close()
	path := b.subscribe(map[string]any{"url": server.URL})
	stop := b.dispatch()
	defer stop()
	b.enqueue("a", "a", "a", "a", "a", "a")
	<-entered
	b.want(204, b.acme, "DELETE", path, nil)
	close(release)
	b.refused("not_found", b.do(b.acme, "DELETE", path, nil))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for one[int64](b, `SELECT (SELECT count(*) FROM postlane.deliveries) + (SELECT count(*) FROM postlane.leases)`) > 0 {
		<-tick.C
	}
	stop()
	b.is.Equal(len(entered), 0) // no other request began
	b.is.Equal(one[string](b, `SELECT string_agg(state || ':' || n, ' ' ORDER BY state) FROM (SELECT state, count(*) AS n FROM postlane.settled GROUP BY state) s`),
		"delivered:1 discarded:5")
}

// A time range is found by halves over a log whose times are in order to within a day.
func TestTimeRanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := b.subscribe(nil)
	id := int64(b.id(path))
	// An hour apart, each up to 20 hours too early; the last 100 still wait.
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b.exec(`INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, created_at, settled_at, attempts, state)
		SELECT $1, n * 3, 'acme', 'e' || n, 'a', $2::timestamptz + n * interval '1 hour' - n * 7919 % 20 * interval '1 hour', now(), 1, 'delivered'
		FROM generate_series(1, 900) n`, id, start)
	b.exec(`INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, created_at)
		SELECT $1, n * 3, 'acme', 'e' || n, 'a', $2::timestamptz + n * interval '1 hour' - n * 7919 % 20 * interval '1 hour'
		FROM generate_series(901, 1000) n`, id, start)
	count := func(since, until time.Duration) int {
		return one[int](b, `SELECT count(*) FROM (SELECT created_at FROM postlane.settled UNION ALL SELECT created_at FROM postlane.deliveries) x
			WHERE created_at >= $1 AND created_at < $2`, start.Add(since), start.Add(until))
	}
	for _, hours := range [][2]int{{0, 2000}, {-50, 0}, {100, 101}, {100, 100}, {880, 920}, {950, 3000}, {1990, 2000}, {-10, 5}, {0, 1000}, {500, 900}} {
		since, until := time.Duration(hours[0])*time.Hour, time.Duration(hours[1])*time.Hour
		for _, order := range []string{"newest", "oldest"} {
			at := fmt.Sprintf("%s/deliveries?limit=70&order=%s&since=%s&until=%s", path, order,
				start.Add(since).Format(time.RFC3339), start.Add(until).Format(time.RFC3339))
			ids, _ := b.pages(b.acme, at)
			if want := count(since, until); len(ids) != want {
				t.Errorf("%v %s: %d and not %d", hours, order, len(ids), want)
			}
		}
	}
}
