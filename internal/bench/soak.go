package bench

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
)

const (
	// soakWindows is how many parts a soak has.
	soakWindows = 10
	// slowAnswer is how long the slow endpoint takes, and soakLease how long a lease
	// is: long enough in flight for several renewals.
	slowAnswer, soakTimeout, soakLease = 4 * time.Second, 5 * time.Second, 6 * time.Second
	// slowPerSecond is how many events a second are for the slow endpoint: half of what a
	// subscription's share of the requests in flight, 64, takes.
	slowPerSecond = 8
)

// soak lets a server deliver, for long, half of what it can at most, and looks at what
// changes: the rate, its memory, the tables of what waits and their indexes. A few of
// the deliveries go to an endpoint that takes long, so that leases are renewed.
func soak(ctx context.Context, r *run) (map[string]any, error) {
	duration := cmp.Or(r.Duration, 10*time.Minute)
	endpoint, err := r.receive(ctx)
	if err != nil {
		return nil, err
	}
	most, err := r.greatestRate(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	if err := r.soakSubscriptions(ctx, endpoint); err != nil {
		return nil, err
	}
	pid, err := r.serve(ctx, []*database{r.database}, "-timeout", soakTimeout.String(), "-lease", soakLease.String())
	if err != nil {
		return nil, err
	}
	earlier, err := received(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	p := &soakProducer{database: r.database, perSecond: most / 2, streams: cmp.Or(r.Streams, 100_000)}
	producing, stop := context.WithCancel(ctx)
	defer stop()
	produced := make(chan error, 1)
	go func() { produced <- p.run(producing) }()
	w := soakWatch{run: r, endpoint: endpoint, pid: pid, seen: earlier, sizes: map[string][]int64{}}
	for range soakWindows {
		if err := w.window(ctx, duration/soakWindows); err != nil {
			return nil, err
		}
	}
	stop()
	if err := <-produced; err != nil {
		return nil, err
	}
	if err := r.awaitDelivered(ctx, p.fast+p.slow); err != nil {
		return nil, err
	}
	if err := r.check(ctx, p.fast+p.slow); err != nil {
		return nil, err
	}
	if err := receivedAll(ctx, endpoint, earlier+p.fast); err != nil {
		return nil, err
	}
	updated, hot, err := r.leaseUpdates(ctx)
	if err != nil {
		return nil, err
	}
	first, last := w.rates[0], w.rates[soakWindows-1]
	return map[string]any{
		"ratio": ratio(last, first), "first_per_s": round(first), "last_per_s": round(last), "greatest_per_s": round(most),
		"rates_per_s": w.rounded(), "rss_mb": w.rss, "sizes_kb": w.sizes, "hot_share": ratio(float64(hot), float64(updated)), "renewals": updated,
		"delivered": p.fast + p.slow, "slow": p.slow, "streams": p.streams, "seconds": duration.Seconds(), "window_seconds": (duration / soakWindows).Seconds(),
		"subscriptions": throughputSubscriptions, "payload_bytes": len(body),
	}, nil
}

// greatestRate is how fast a dispatcher delivers a backlog.
func (r *run) greatestRate(ctx context.Context, endpoint string) (float64, error) {
	n := cmp.Or(r.N, 50_000)
	d, err := r.newDatabase(ctx, connections)
	if err != nil {
		return 0, err
	}
	if err := r.ready(ctx, d, endpoint, n); err != nil {
		return 0, err
	}
	return r.drain(ctx, d, n, delivery.Config{})
}

// slowTenant is that of the subscription to the slow endpoint.
const slowTenant = "slow"

func (r *run) soakSubscriptions(ctx context.Context, endpoint string) error {
	if _, err := r.subscribe(ctx, throughputSubscriptions, endpoint); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_ = pause(req.Context(), slowAnswer) // cut short, it is no answer
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // until it is closed
	r.undo = append(r.undo, func() error {
		err := server.Close()
		serving.Wait()
		return err
	})
	_, _, err = r.store.CreateSubscription(ctx, slowTenant, delivery.Settings{URL: "http://" + listener.Addr().String(), MaxInFlight: 1000})
	return err
}

// soakProducer writes events at a steady rate.
type soakProducer struct {
	*database

	perSecond  float64
	streams    int
	fast, slow int
}

// run writes until ctx ends: ten times a second what is missing by then.
func (p *soakProducer) run(ctx context.Context) error {
	began := time.Now()
	for pause(ctx, 100*time.Millisecond) == nil {
		passed := time.Since(began).Seconds()
		due, slow := int(passed*p.perSecond), int(passed*slowPerSecond)
		var events []delivery.Event
		for i := p.fast; i < due; i++ {
			events = append(events, delivery.Event{Tenant: tenant(i % throughputSubscriptions), Type: "asset.updated", Asset: fmt.Sprintf("asset-%d", i%p.streams), Payload: body})
		}
		p.fast += len(events)
		for ; p.slow < slow; p.slow++ {
			events = append(events, delivery.Event{Tenant: slowTenant, Type: "asset.updated", Asset: fmt.Sprintf("asset-%d", p.slow), Payload: body})
		}
		err := pgx.BeginFunc(context.WithoutCancel(ctx), p.pool, func(tx pgx.Tx) error {
			_, err := delivery.Enqueue(context.WithoutCancel(ctx), tx, events...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// soakWatch notes what changes in a soak, window by window.
type soakWatch struct {
	*run

	endpoint string
	pid      int
	seen     int
	rates    []float64
	rss      []float64
	sizes    map[string][]int64 // in kB
}

func (w *soakWatch) window(ctx context.Context, length time.Duration) error {
	began := time.Now()
	if err := pause(ctx, length); err != nil {
		return err
	}
	seen, err := received(ctx, w.endpoint)
	if err != nil {
		return err
	}
	rate := float64(seen-w.seen) / time.Since(began).Seconds()
	w.rates, w.seen = append(w.rates, rate), seen
	rss, err := residentMB(w.pid)
	if err != nil {
		return err
	}
	w.rss = append(w.rss, rss)
	rows, err := w.pool.Query(ctx, `SELECT c.relname, pg_relation_size(c.oid) / 1024 FROM pg_class c
		WHERE c.relnamespace = 'postlane'::regnamespace AND c.relkind IN ('r', 'i') AND (c.relname LIKE 'deliveries%' OR c.relname LIKE 'leases%')`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var kb int64
		if err := rows.Scan(&name, &kb); err != nil {
			return err
		}
		w.sizes[name] = append(w.sizes[name], kb)
	}
	w.logf("%.0f/s, %.0f MB", rate, rss)
	return rows.Err()
}

func (w *soakWatch) rounded() []int64 {
	list := make([]int64, len(w.rates))
	for i, rate := range w.rates {
		list[i] = round(rate)
	}
	return list
}

// leaseUpdates returns how many leases were updated, and how many of those touched no
// index.
func (d *database) leaseUpdates(ctx context.Context) (updated, hot int64, err error) {
	err = d.pool.QueryRow(ctx, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'postlane' AND relname = 'leases'").Scan(&updated, &hot)
	return updated, hot, err
}
