package metrics_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/metrics"
	"github.com/postlane-go/postlane/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counted is a process's metrics with those of its one database.
type counted struct {
	*metrics.Metrics
	*metrics.Database
}

// newMetrics are those of a process whose database is away.
func newMetrics(t *testing.T) counted {
	t.Helper()
	is := is.New(t)
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/nowhere")
	is.NoErr(err)
	t.Cleanup(pool.Close)
	m := counted{}
	m.Metrics, err = metrics.New()
	is.NoErr(err)
	m.Database, err = m.Metrics.Database("", pool)
	is.NoErr(err)
	store, err := delivery.NewStore(pool, delivery.StoreConfig{})
	is.NoErr(err)
	d, err := delivery.New(delivery.Config{Store: store, NoListen: true})
	is.NoErr(err)
	is.NoErr(m.Watch(d))
	return m
}

// read is what a scrape finds, by name.
func read(t *testing.T, m http.Handler) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	is.New(t).NoErr(err)
	return families
}

// sample is the value of a counter or gauge, or the count of a histogram, with exactly
// these labels: name, value, name, value.
func sample(t *testing.T, families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	for _, m := range families[name].GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetName(), l.GetValue())
		}
		if !slices.Equal(have, labels) {
			continue
		}
		switch {
		case m.GetCounter() != nil:
			return m.GetCounter().GetValue()
		case m.GetGauge() != nil:
			return m.GetGauge().GetValue()
		case m.GetHistogram() != nil:
			return float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("there is no %s%v", name, labels)
	return 0
}

type relay struct{ err error }

func (relay) Stats() outbox.Stats { return outbox.Stats{Published: 5, Failed: 2} }

func (r relay) Pending(context.Context) (outbox.Backlog, error) {
	return outbox.Backlog{Pending: 3, OldestAge: time.Minute, Parked: 1}, r.err
}

// happened has something of everything counted.
func happened(t *testing.T, m counted) {
	t.Helper()
	o := m.Observer()
	o.Claimed(3, time.Millisecond)
	o.Settled(delivery.Observation{Subscription: 7, EventType: "invoice.paid", Outcome: "delivered", Status: 204, Duration: time.Second, State: delivery.SettledDelivered})
	o.Settled(delivery.Observation{Subscription: 7, EventType: "invoice.paid", Outcome: "http_status", Status: 500, State: delivery.SettledDead})
	o.Settled(delivery.Observation{State: delivery.SettledReleased})
	o.LeasesLost(1)
	o.Reclaimed(2)
	o.Orphans(0)
	o.Disabled(7, "twenty died")
	o.Opened(7)
	o.Closed(7, time.Hour)
	o.OpenBreakers(3, 2*time.Hour)
	o.ActiveSubscriptions(12)
	o.OldestDue(90 * time.Second)
	m.Pruned("events", 4)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /things/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	served := m.Requests(mux)
	for _, path := range []string{"/things/1", "/things/2", "/other"} {
		served.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := newMetrics(t)
	is.NoErr(m.WatchRelay(relay{}))
	happened(t, m)
	got := read(t, m)
	is.Equal(sample(t, got, "postlane_deliveries_settled_total", "outcome", "delivered", "state", "delivered"), 1.)
	is.Equal(sample(t, got, "postlane_deliveries_settled_total", "outcome", "http_status", "state", "dead"), 1.)
	is.Equal(sample(t, got, "postlane_deliveries_settled_total", "outcome", "none", "state", "released"), 1.)
	is.Equal(sample(t, got, "postlane_attempt_duration_seconds", "outcome", "delivered"), 1.)
	is.Equal(sample(t, got, "postlane_claimed_deliveries_total"), 3.)
	is.Equal(sample(t, got, "postlane_claim_duration_seconds"), 1.)
	is.Equal(sample(t, got, "postlane_leases_lost_total"), 1.)
	is.Equal(sample(t, got, "postlane_reclaimed_deliveries_total"), 2.)
	is.Equal(sample(t, got, "postlane_orphaned_streams_total"), 0.)
	is.Equal(sample(t, got, "postlane_subscriptions_disabled_total"), 1.)
	is.Equal(sample(t, got, "postlane_breakers_opened_total"), 1.)
	is.Equal(sample(t, got, "postlane_breakers_closed_total"), 1.)
	is.Equal(sample(t, got, "postlane_breakers_open"), 3.)
	is.Equal(sample(t, got, "postlane_breakers_open_longest_seconds"), 7200.)
	is.Equal(sample(t, got, "postlane_subscriptions_active"), 12.)
	is.Equal(sample(t, got, "postlane_oldest_due_seconds"), 90.)
	is.Equal(sample(t, got, "postlane_in_flight"), 0.)
	is.Equal(sample(t, got, "postlane_listening"), 0.)
	is.Equal(sample(t, got, "postlane_http_requests_total", "route", "GET /things/{id}", "status", "418"), 2.)
	is.Equal(sample(t, got, "postlane_http_requests_total", "route", "none", "status", "404"), 1.)
	is.Equal(sample(t, got, "postlane_pruned_rows_total", "kind", "events"), 4.)
	is.Equal(sample(t, got, "postlane_pool_connections", "state", "acquired"), 0.)
	is.Equal(sample(t, got, "postlane_outbox_published_total"), 5.)
	is.Equal(sample(t, got, "postlane_outbox_messages", "state", "parked"), 1.)
	is.Equal(sample(t, got, "postlane_outbox_oldest_pending_seconds"), 60.)
	is.Equal(len(got["postlane_build_info"].GetMetric()), 1)
	// Nothing waits: no age.
	m.Observer().OldestDue(-1)
	is.Equal(sample(t, read(t, m), "postlane_oldest_due_seconds"), 0.)
}

// What the database would have told is left out while it is away, and nothing else.
func TestTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := newMetrics(t)
	is.NoErr(m.WatchRelay(relay{errors.New("away")}))
	got := read(t, m)
	is.Equal(sample(t, got, "postlane_outbox_published_total"), 5.)
	is.Equal(got["postlane_outbox_messages"], nil)
}

// Labels are words of small sets: nothing of a tenant, a URL, an asset or a payload.
func TestLabelsAreFew(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := newMetrics(t)
	is.NoErr(m.WatchRelay(relay{}))
	happened(t, m)
	names := map[string]bool{}
	for name, family := range read(t, m) {
		if !strings.HasPrefix(name, "postlane_") {
			continue // of Go and of the process
		}
		for _, metric := range family.GetMetric() {
			for _, l := range metric.GetLabel() {
				names[l.GetName()] = true
				is.True(!strings.Contains(l.GetValue(), "invoice.paid") && !strings.Contains(l.GetValue(), "twenty died"))
			}
		}
	}
	is.Equal(slices.Sorted(maps.Keys(names)), []string{"goversion", "kind", "outcome", "revision", "route", "state", "status", "version"})
}
