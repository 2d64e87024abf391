package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for the zone of TZ

	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// The server's sessions are in one zone with daylight saving, the process is in another,
// and both are nobody's business: the API's times are in UTC, and what it is given means
// the same in any.
func TestTimesInOtherZones(t *testing.T) {
	t.Parallel()
	const process, server = "America/St_Johns", "Europe/Berlin"
	if os.Getenv("TZ") != process { // a process has one zone, and so has its own
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTimesInOtherZones$", "-test.v")
		c.Env = append(os.Environ(), "TZ="+process)
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestTimesInOtherZones") {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	b := setupOn(t, pgtest.NewDirect(t), guard.Policy{Development: true}) // a pooler's sessions know the zone of before
	b.exec(fmt.Sprintf("ALTER DATABASE %s SET timezone = '%s'", b.pool.Config().ConnConfig.Database, server))
	b.pool.Reset()
	b.is.Equal(one[string](b, "SHOW timezone"), server)
	b.is.Equal(time.Date(2026, 7, 1, 12, 0, 0, 0, time.Local).UTC().Format(time.TimeOnly), "14:30:00")

	times := 0
	for _, r := range b.described(b.furnished()) {
		body := bodies[r.id]
		if r.id == "delete-subscription" || r.id == "delete-event-type" {
			continue // others are yet to be asked about it
		}
		key := b.acme
		if r.operators {
			key = operatorKey
		}
		got := b.do(key, r.method, r.path, body)
		var answered any
		if strings.Contains(got.header.Get("Content-Type"), "json") {
			b.is.NoErr(json.Unmarshal(got.body, &answered))
		}
		times += inUTC(t, r.id, answered)
	}
	b.is.True(times > 30)

	// An hour that Berlin has twice, St John's an ordinary one: an event every 10 minutes.
	path := b.subscribe(nil)
	start := time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC)
	b.exec(`INSERT INTO postlane.settled (subscription_id, seq, tenant, event_id, event_type, created_at, settled_at, attempts, state)
		SELECT $2, 1000 + n, 'acme', 'z' || n, 'thing.changed', $1::timestamptz + n * interval '10 minutes', $1::timestamptz + n * interval '10 minutes', 1, 'delivered'
		FROM generate_series(0, 17) n`, start, b.id(path))
	b.exec(`INSERT INTO postlane.events (seq, tenant, id, type, content_type, payload, created_at)
		SELECT 1000 + n, 'acme', 'z' || n, 'thing.changed', 'text/plain', '', $1::timestamptz + n * interval '10 minutes' FROM generate_series(0, 17) n`, start)
	for _, test := range []struct {
		since, until string
		want         int
	}{
		{"2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", 6},
		{"2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", 6},
		{"2026-10-25T02:00:00+02:00", "2026-10-25T03:00:00+01:00", 12},
		{"2026-10-25T02:30:00+01:00", "2026-10-25T04:00:00+01:00", 9},
		{"2026-10-24T22:30:00-02:30", "2026-10-25T00:00:00-02:30", 9},
	} {
		query := url.Values{"since": {test.since}, "until": {test.until}}.Encode()
		listed := b.want(200, b.acme, http.MethodGet, path+"/deliveries?"+query, nil)
		b.is.Equal(len(b.data(listed)), test.want)
		dry := b.want(200, b.acme, http.MethodPost, path+"/replay", map[string]any{"dry_run": true, "since": test.since, "until": test.until}).object(b)
		b.is.Equal(dry["matched"], float64(test.want))
		b.is.True(inUTC(t, test.since, dry) <= 1)
	}
	b.refused("invalid", b.do(b.acme, http.MethodGet, path+"/deliveries?since=2026-10-25T02:00:00", nil)) // of no zone

	// The same replay, whatever zone its range is written in.
	asked := map[string]any{"id": "z", "since": "2026-10-25T02:00:00+02:00", "until": "2026-10-25T02:00:00+01:00"}
	b.is.Equal(b.want(200, b.acme, http.MethodPost, path+"/replay", asked).object(b)["deliveries"], 6.0)
	asked["since"], asked["until"] = "2026-10-24T21:30:00-02:30", "2026-10-25T01:00:00Z"
	b.is.Equal(b.want(200, b.acme, http.MethodPost, path+"/replay", asked).object(b)["deliveries"], 6.0)
}

// inUTC counts the times in an answer, and fails the test for each that is not in UTC.
func inUTC(t *testing.T, of string, v any) (n int) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			n += inUTC(t, of+" "+name, field)
		}
	case []any:
		for _, item := range v {
			n += inUTC(t, of, item)
		}
	case string:
		if _, err := time.Parse(time.RFC3339Nano, v); err == nil {
			n++
			if !strings.HasSuffix(v, "Z") {
				t.Errorf("%s is %s", of, v)
			}
		}
	}
	return n
}
