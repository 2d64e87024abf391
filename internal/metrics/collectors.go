package metrics

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/postlane-go/postlane/outbox"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// value sends a metric that was read this moment.
func value(ch chan<- prometheus.Metric, d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
}

// newBuild tells which release runs.
func newBuild() prometheus.Collector {
	version, revision, goVersion := "(devel)", "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		if info.Main.Version != "" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "postlane_build_info", Help: "Always 1; the labels tell which release runs.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": goVersion},
	}, func() float64 { return 1 })
}

// poolCollector tells of the connections to the database.
type poolCollector struct{ pool *pgxpool.Pool }

var (
	poolConnections = desc("postlane_pool_connections", "Connections to the database, by state.", "state")
	poolMax         = desc("postlane_pool_connections_max", "The most connections that the pool opens.")
	poolAcquires    = desc("postlane_pool_acquires_total", "Connections taken from the pool.")
	poolWaits       = desc("postlane_pool_waits_total", "Times that no connection was free and somebody had to wait.")
	poolCanceled    = desc("postlane_pool_canceled_acquires_total", "Times that somebody gave up waiting for a connection.")
	poolWaited      = desc("postlane_pool_wait_seconds_total", "How long connections were waited for, together.")
)

func (poolCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolConnections, poolMax, poolAcquires, poolWaits, poolCanceled, poolWaited} {
		ch <- d
	}
}

func (c poolCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.pool.Stat()
	value(ch, poolConnections, prometheus.GaugeValue, float64(s.AcquiredConns()), "acquired")
	value(ch, poolConnections, prometheus.GaugeValue, float64(s.IdleConns()), "idle")
	value(ch, poolConnections, prometheus.GaugeValue, float64(s.ConstructingConns()), "constructing")
	value(ch, poolMax, prometheus.GaugeValue, float64(s.MaxConns()))
	value(ch, poolAcquires, prometheus.CounterValue, float64(s.AcquireCount()))
	value(ch, poolWaits, prometheus.CounterValue, float64(s.EmptyAcquireCount()))
	value(ch, poolCanceled, prometheus.CounterValue, float64(s.CanceledAcquireCount()))
	value(ch, poolWaited, prometheus.CounterValue, s.EmptyAcquireWaitTime().Seconds())
}

// Replica is what is read of a replica: *replica.Replica is one.
type Replica interface {
	State() (lag time.Duration, read bool)
}

// WatchReplica adds how far a replica is behind. Once.
func (d *Database) WatchReplica(r Replica) error { return d.registry.Register(replicaCollector{r}) }

type replicaCollector struct{ replica Replica }

var (
	replicaRead = desc("postlane_replica_read", "Whether lists and pages are read from the replica: 0 while it is away or too far behind, and the primary is read.")
	replicaLag  = desc("postlane_replica_lag_seconds", "How far the replica was behind when it was last asked, to a second.")
)

func (replicaCollector) Describe(ch chan<- *prometheus.Desc) { ch <- replicaRead; ch <- replicaLag }

func (c replicaCollector) Collect(ch chan<- prometheus.Metric) {
	lag, read := c.replica.State()
	value(ch, replicaRead, prometheus.GaugeValue, flag(read))
	value(ch, replicaLag, prometheus.GaugeValue, lag.Seconds())
}

// Relay is what is read of a relay of the outbox: *outbox.Relay is one.
type Relay interface {
	Stats() outbox.Stats
	Pending(ctx context.Context) (outbox.Backlog, error)
}

// WatchRelay adds what a relay can tell. Once.
func (d *Database) WatchRelay(r Relay) error { return d.registry.Register(relayCollector{r}) }

type relayCollector struct{ relay Relay }

var (
	relayPublished = desc("postlane_outbox_published_total", "Messages that this process published.")
	relayFailed    = desc("postlane_outbox_failed_total", "Attempts to publish that failed.")
	relayReleased  = desc("postlane_outbox_released_total", "Messages that were handed back unpublished: behind a failed one, or when stopping.")
	relayLost      = desc("postlane_outbox_leases_lost_total", "Claims of this process that were found to be another's.")
	relayErrors    = desc("postlane_outbox_store_errors_total", "Times that the database failed the relay.")
	relayMessages  = desc("postlane_outbox_messages", "Messages that are not published, by state: pending, scheduled, parked. Counted up to 100,000.", "state")
	relayOldest    = desc("postlane_outbox_oldest_pending_seconds", "How long the longest pending message has waited; 0 if none waits.")
	relayWaiting   = desc("postlane_outbox_waiting_queues", "Queues that wait for the next attempt of a failed message. Counted up to 100,000.")
)

func (relayCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{relayPublished, relayFailed, relayReleased, relayLost, relayErrors, relayMessages, relayOldest, relayWaiting} {
		ch <- d
	}
}

// backlogTimeout bounds the reading of the backlog, which the whole answer waits for.
const backlogTimeout = 3 * time.Second

func (c relayCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.relay.Stats()
	value(ch, relayPublished, prometheus.CounterValue, float64(s.Published))
	value(ch, relayFailed, prometheus.CounterValue, float64(s.Failed))
	value(ch, relayReleased, prometheus.CounterValue, float64(s.Released))
	value(ch, relayLost, prometheus.CounterValue, float64(s.Lost))
	value(ch, relayErrors, prometheus.CounterValue, float64(s.StoreErrors))
	ctx, cancel := context.WithTimeout(context.Background(), backlogTimeout)
	defer cancel()
	b, err := c.relay.Pending(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(relayMessages, err)
		return
	}
	value(ch, relayMessages, prometheus.GaugeValue, float64(b.Pending), "pending")
	value(ch, relayMessages, prometheus.GaugeValue, float64(b.Scheduled), "scheduled")
	value(ch, relayMessages, prometheus.GaugeValue, float64(b.Parked), "parked")
	value(ch, relayOldest, prometheus.GaugeValue, b.OldestAge.Seconds())
	value(ch, relayWaiting, prometheus.GaugeValue, float64(b.Waiting))
}
