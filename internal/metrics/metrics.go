// Package metrics is what a server counts, in Prometheus's text.
//
// A label is a word of a small fixed set: a state, an outcome, a route. No tenant, URL,
// asset or event type is one, since whoever reads the metrics need not know them and
// each value would be a series of its own.
package metrics

import (
	"errors"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/postlane-go/postlane/delivery"
)

// Metrics are those of a process. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	handler  http.Handler
	requests *prometheus.CounterVec
	request  *prometheus.HistogramVec
}

// Database is what is counted of a process's work with one database. It is safe for
// concurrent use.
type Database struct {
	registry prometheus.Registerer

	settled       *prometheus.CounterVec
	attempt       *prometheus.HistogramVec
	claim         prometheus.Histogram
	claimed       prometheus.Counter
	leasesLost    prometheus.Counter
	reclaimed     prometheus.Counter
	orphans       prometheus.Counter
	disabled      prometheus.Counter
	opened        prometheus.Counter
	closed        prometheus.Counter
	open          prometheus.Gauge
	openLongest   prometheus.Gauge
	active        prometheus.Gauge
	oldestDue     prometheus.Gauge
	oldestDueTold prometheus.Gauge
	pruned        *prometheus.CounterVec
}

// New returns the metrics of a process.
func New() (*Metrics, error) {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "postlane_http_requests_total", Help: "Requests that were answered, by route and status.",
		}, []string{"route", "status"}),
		request: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "postlane_http_request_duration_seconds", Help: "How long answers took, by route.", Buckets: prometheus.DefBuckets,
		}, []string{"route"}),
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.request, newBuild(),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := m.registry.Register(c); err != nil {
			return nil, err
		}
	}
	// What can be told is told, also while the database is away.
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
	return m, nil
}

// Database adds what is counted of the work with a database, by a pool. A name, which a
// process with several databases gives to each, is its label.
func (m *Metrics) Database(name string, pool *pgxpool.Pool) (*Database, error) {
	if pool == nil {
		return nil, errors.New("metrics: needs a pool")
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	d := &Database{
		registry: m.registry,
		settled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "postlane_deliveries_settled_total",
			Help: "Attempts whose outcome was recorded, by what it made of the delivery: delivered, pending (waits for the next attempt), dead, held (dead, and holds its stream), discarded, released or lost.",
		}, []string{"state", "outcome"}),
		attempt: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "postlane_attempt_duration_seconds", Help: "How long requests to endpoints took, by outcome.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"outcome"}),
		claim: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "postlane_claim_duration_seconds", Help: "How long claims took in the database.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
		}),
		claimed:       counter("postlane_claimed_deliveries_total", "Deliveries that this process claimed."),
		leasesLost:    counter("postlane_leases_lost_total", "Claims of this process that were found to be another's, or settled before."),
		reclaimed:     counter("postlane_reclaimed_deliveries_total", "Deliveries that this process took back from claimants that went silent."),
		orphans:       counter("postlane_orphaned_streams_total", "Streams that nothing would have woken. Anything but 0 is a bug."),
		disabled:      counter("postlane_subscriptions_disabled_total", "Subscriptions that were disabled for their failures."),
		opened:        counter("postlane_breakers_opened_total", "Subscriptions whose breaker this process opened, since their endpoint was not there."),
		closed:        counter("postlane_breakers_closed_total", "Breakers that this process opened and that have closed."),
		open:          gauge("postlane_breakers_open", "Active subscriptions to which only probes are sent. Counted up to 10,000."),
		openLongest:   gauge("postlane_breakers_open_longest_seconds", "For how long the breaker that has been open longest has been, of those; 0 if none is."),
		active:        gauge("postlane_subscriptions_active", "Subscriptions that are active. Counted up to 10,000."),
		oldestDue:     gauge("postlane_oldest_due_seconds", "For how long the longest waiting delivery that could be claimed has waited since its event was written or, if later, since its subscription's rate limit had a place for it; 0 if none waits."),
		oldestDueTold: gauge("postlane_oldest_due_timestamp_seconds", "When postlane_oldest_due_seconds was last measured. It stands still while the database does not answer."),
		pruned: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "postlane_pruned_rows_total", Help: "Rows that this process removed for their age, by kind.",
		}, []string{"kind"}),
	}
	if name != "" {
		d.registry = prometheus.WrapRegistererWith(prometheus.Labels{"database": name}, m.registry)
	}
	for _, kind := range []string{"deliveries", "attempts", "events", "messages", "audit", "sessions", "secrets"} {
		d.pruned.WithLabelValues(kind)
	}
	for _, c := range []prometheus.Collector{
		d.settled, d.attempt, d.claim, d.claimed, d.leasesLost, d.reclaimed, d.orphans, d.disabled, d.opened, d.closed, d.open, d.openLongest, d.active, d.oldestDue, d.oldestDueTold,
		d.pruned, poolCollector{pool},
	} {
		if err := d.registry.Register(c); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// ServeHTTP answers with the metrics.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// Observer counts what a dispatcher does.
func (d *Database) Observer() delivery.Observer {
	return delivery.Observer{
		Claimed: func(n int, took time.Duration) {
			d.claimed.Add(float64(n))
			d.claim.Observe(took.Seconds())
		},
		Settled: func(o delivery.Observation) {
			outcome := o.Outcome
			if outcome == "" {
				outcome = "none"
			} else {
				d.attempt.WithLabelValues(outcome).Observe(o.Duration.Seconds())
			}
			d.settled.WithLabelValues(string(o.State), outcome).Inc()
		},
		LeasesLost: func(n int) { d.leasesLost.Add(float64(n)) },
		Reclaimed:  func(n int) { d.reclaimed.Add(float64(n)) },
		Orphans:    func(n int) { d.orphans.Add(float64(n)) },
		Disabled:   func(delivery.SubscriptionID, string) { d.disabled.Inc() },
		Opened:     func(delivery.SubscriptionID) { d.opened.Inc() },
		Closed:     func(delivery.SubscriptionID, time.Duration) { d.closed.Inc() },
		OpenBreakers: func(n int, longest time.Duration) {
			d.open.Set(float64(n))
			d.openLongest.Set(longest.Seconds())
		},
		ActiveSubscriptions: func(n int) { d.active.Set(float64(n)) },
		OldestDue: func(age time.Duration) {
			d.oldestDue.Set(max(age, 0).Seconds())
			d.oldestDueTold.SetToCurrentTime()
		},
	}
}

// Watch adds what a dispatcher can tell of itself. Once.
func (d *Database) Watch(dispatcher *delivery.Dispatcher) error {
	for _, g := range []struct {
		name, help string
		value      func() float64
	}{
		{"postlane_in_flight", "Deliveries that this process has claimed and not yet settled.", func() float64 { return float64(dispatcher.InFlight()) }},
		{"postlane_listening", "Whether wake-ups arrive; while they do not, the dispatcher polls.", func() float64 { return flag(dispatcher.Listening()) }},
	} {
		if err := d.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, g.value)); err != nil {
			return err
		}
	}
	return nil
}

// Pruned counts removed rows of a kind.
func (d *Database) Pruned(kind string, rows int64) { d.pruned.WithLabelValues(kind).Add(float64(rows)) }

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
