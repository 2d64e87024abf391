package bench

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/receiver"
)

const (
	// outageLength is how long the endpoints answer 500, in time that is shifted away.
	outageLength = 72 * time.Hour
	// outageAssets is how many streams a subscription has, and outageAttempts how many
	// attempts a delivery: with the default schedule more than an outage takes.
	outageAssets, outageAttempts = 2, 20
	// outageGrowth is how much memory a server may gain while it drains, in MB beside a
	// quarter of what it has.
	outageGrowth = 20
)

// outage lets every endpoint of a large backlog fail for three days, which pass in
// minutes, since each wait of the retries is shifted away, and looks at what comes after:
// whether everything arrives, once accepted and in order, and what memory the server
// takes.
func outage(ctx context.Context, r *run) (map[string]any, error) {
	n, subscriptions := cmp.Or(r.N, 20_000), 500
	if r.Full {
		n, subscriptions = cmp.Or(r.N, 1_000_000), 10_000
	}
	o := &away{run: r, n: n, streams: min(n, subscriptions*outageAssets)}
	endpoint, err := o.receive()
	if err != nil {
		return nil, err
	}
	if err := o.fill(ctx, subscriptions, endpoint); err != nil {
		return nil, err
	}
	if o.pid, err = r.serve(ctx, []*database{r.database}); err != nil {
		return nil, err
	}
	shifted, err := o.last(ctx)
	if err != nil {
		return nil, err
	}
	failed := o.receiver.Verdict().Requests
	r.logf("%v are over after %d attempts; the endpoints answer again", shifted.Round(time.Minute), failed)
	if err := o.receiver.Behave(receiver.AnyPath, receiver.Behaviour{}); err != nil {
		return nil, err
	}
	began := time.Now()
	if _, err := o.shift(ctx); err != nil {
		return nil, err
	}
	if err := o.drain(ctx); err != nil {
		return nil, err
	}
	drained := time.Since(began)
	if err := o.judge(ctx, failed); err != nil {
		return nil, err
	}
	return map[string]any{
		"events": n, "subscriptions": subscriptions, "streams": o.streams, "outage_hours": shifted.Hours(), "failed_attempts": failed,
		"drained_per_s": round(float64(n) / drained.Seconds()), "drain_seconds": drained.Seconds(),
		"lost": 0, "out_of_order": 0, "overlaps": 0, "redelivered": 0, // or there are no figures
		"rss_mb": o.most, "first_rss_mb": o.first, "last_rss_mb": o.now, "payload_bytes": len(body),
	}, nil
}

// away is an outage.
type away struct {
	*run
	n, streams int
	receiver   *receiver.Receiver
	pid        int

	state            string  // what is waited for
	first, now, most float64 // of the server's memory: as the drain began, now, at most
}

// receive starts a receiver in this process that judges every request, and is away.
func (o *away) receive() (url string, err error) {
	if o.receiver, err = receiver.New(receiver.Config{}); err != nil {
		return "", err
	}
	if err := o.receiver.Behave(receiver.AnyPath, receiver.Behaviour{Status: http.StatusInternalServerError}); err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- o.receiver.Serve(ctx, listener) }()
	o.undo = append(o.undo, func() error { stop(); return <-done })
	return "http://" + listener.Addr().String(), nil
}

// fill subscribes and enqueues.
func (o *away) fill(ctx context.Context, subscriptions int, endpoint string) error {
	for i := range subscriptions {
		path := fmt.Sprintf("/%d", i)
		_, secret, err := o.store.CreateSubscription(ctx, tenant(i), delivery.Settings{URL: endpoint + path, MaxAttempts: outageAttempts})
		if err != nil {
			return err
		}
		if err := o.receiver.SetSecrets(path, secret.Reveal()); err != nil {
			return err
		}
	}
	o.logf("%d subscriptions; enqueueing %d events", subscriptions, o.n)
	return o.load(ctx, o.n, subscriptions, func(i int) string { return fmt.Sprintf("asset-%d", i/subscriptions%outageAssets) })
}

// last waits for every stream to fail, and shifts the wait for its retry away, until as
// much time has passed as the outage takes, which it returns.
func (o *away) last(ctx context.Context) (passed time.Duration, err error) {
	for {
		waits := func() (bool, error) {
			var waiting, leases int
			err := o.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM postlane.deliveries d WHERE d.due_at > now()),
				(SELECT count(*) FROM postlane.leases)`).Scan(&waiting, &leases)
			o.state = fmt.Sprintf("%d of %d streams wait for their time, %d are in flight", waiting, o.streams, leases)
			return waiting == o.streams && leases == 0, err
		}
		if err := o.await(ctx, waits); err != nil {
			return passed, err
		}
		if passed >= outageLength {
			return passed, nil
		}
		wait, err := o.shift(ctx)
		if err != nil {
			return passed, err
		}
		passed += wait
		o.logf("%v have passed, %.0f MB", passed.Round(time.Minute), o.now)
	}
}

// shift makes everything due that waits for its time, and returns the longest wait.
func (o *away) shift(ctx context.Context) (wait time.Duration, err error) {
	var seconds float64
	err = o.pool.QueryRow(ctx, `WITH wait AS MATERIALIZED (SELECT max(due_at) - now() AS longest FROM postlane.deliveries),
		shifted AS (UPDATE postlane.deliveries d SET due_at = d.due_at - w.longest FROM wait w WHERE d.due_at IS NOT NULL)
		SELECT extract(epoch FROM w.longest)::float8 FROM wait w`).Scan(&seconds)
	return time.Duration(seconds * float64(time.Second)), err
}

// drain waits until everything is accepted and recorded.
func (o *away) drain(ctx context.Context) error {
	var err error
	if o.first, err = residentMB(o.pid); err != nil {
		return err
	}
	accepted := func() (bool, error) {
		n := o.receiver.Verdict().Accepted
		o.state = fmt.Sprintf("%d of %d events are accepted", n, o.n)
		return n >= int64(o.n), nil
	}
	if err := o.await(ctx, accepted); err != nil {
		return err
	}
	return o.awaitDelivered(ctx, o.n)
}

// await waits for something, and watches the server's memory. It gives up when nothing
// arrives any more.
func (o *away) await(ctx context.Context, f func() (bool, error)) error {
	const patience = time.Minute
	arrived, since := int64(-1), time.Now()
	for {
		so, err := f()
		if err != nil || so {
			return err
		}
		if o.now, err = residentMB(o.pid); err != nil {
			return err
		}
		o.most = max(o.most, o.now)
		switch n := o.receiver.Verdict().Requests; {
		case n != arrived:
			arrived, since = n, time.Now()
		case time.Since(since) > patience:
			return fmt.Errorf("%s, and no request has arrived for %v, after %d", o.state, patience, n)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// judge looks at what the receiver found, at what the database has, and at the memory.
func (o *away) judge(ctx context.Context, failed int64) error {
	v := o.receiver.Verdict()
	if !v.OK() || v.Accepted != int64(o.n) || v.Requests != failed+int64(o.n) || v.Redelivered != 0 {
		return fmt.Errorf("the receiver found: %+v", v)
	}
	var delivered, other, left int
	err := o.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM postlane.settled WHERE state = 'delivered'),
		(SELECT count(*) FROM postlane.settled WHERE state <> 'delivered'), (SELECT count(*) FROM postlane.deliveries)`).Scan(&delivered, &other, &left)
	if err != nil {
		return err
	}
	if delivered != o.n || other+left != 0 {
		return fmt.Errorf("of %d deliveries %d were delivered, %d ended otherwise, %d wait", o.n, delivered, other, left)
	}
	if o.now > 1.25*o.first+outageGrowth {
		return fmt.Errorf("the memory of the server grew from %.0f MB to %.0f MB while it drained", o.first, o.now)
	}
	return nil
}
