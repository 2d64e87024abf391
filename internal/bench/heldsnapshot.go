package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
)

// heldSnapshot delivers the same backlog twice, each on a database of its own: once
// undisturbed, and once while another session holds a snapshot, so that nothing which
// dies can be cleaned away. Each is compared with its own beginning.
func heldSnapshot(ctx context.Context, r *run) (map[string]any, error) {
	duration := cmp.Or(r.Duration, 90*time.Second)
	endpoint, err := r.receive(ctx)
	if err != nil {
		return nil, err
	}
	n := r.N
	if n == 0 {
		if n, err = r.enoughFor(ctx, endpoint, duration); err != nil {
			return nil, err
		}
	}
	free, err := r.fade(ctx, endpoint, n, duration, false)
	if err != nil {
		return nil, fmt.Errorf("free: %w", err)
	}
	held, err := r.fade(ctx, endpoint, n, duration, true)
	if err != nil {
		return nil, fmt.Errorf("with a snapshot held: %w", err)
	}
	return map[string]any{
		"ratio": held.ratio(), "free_ratio": free.ratio(), "first_per_s": round(held.first), "last_per_s": round(held.last),
		"free_first_per_s": round(free.first), "free_last_per_s": round(free.last), "delivered": held.n, "free_delivered": free.n,
		"n": n, "streams": streamsOf(n, r.Streams), "subscriptions": throughputSubscriptions, "seconds": duration.Seconds(), "window_seconds": window(duration).Seconds(),
		"delay_ms": r.Delay.Milliseconds(), "payload_bytes": len(body),
	}, nil
}

// faded is how fast work was at its beginning and at its end.
type faded struct {
	first, last float64
	n           int
}

func (f faded) ratio() float64 { return ratio(f.last, f.first) }

// window is how much of a duration is its beginning, and its end.
func window(duration time.Duration) time.Duration { return min(10*time.Second, duration/3) }

// enoughFor returns how many deliveries no dispatcher finishes in duration: half again as
// many as a short trial makes.
func (r *run) enoughFor(ctx context.Context, endpoint string, duration time.Duration) (int, error) {
	const trial = 20_000
	d, err := r.newDatabase(ctx, connections)
	if err != nil {
		return 0, err
	}
	if err := r.ready(ctx, d, endpoint, trial); err != nil {
		return 0, err
	}
	rate, err := r.drain(ctx, d, trial, delivery.Config{})
	return int(rate*duration.Seconds()*1.5) + trial, err
}

// ready loads a backlog of n deliveries that can be sent.
func (r *run) ready(ctx context.Context, d *database, endpoint string, n int) error {
	began := time.Now()
	subscriptions, err := d.subscribe(ctx, throughputSubscriptions, endpoint)
	if err != nil {
		return err
	}
	ids := make([]int64, len(subscriptions))
	for i, id := range subscriptions {
		ids[i] = int64(id)
	}
	if err := d.addEvents(ctx, n); err != nil {
		return err
	}
	asset := fmt.Sprintf("'asset-' || (i / s) %% greatest(%d / s, 1)", streamsOf(n, r.Streams))
	err = d.addDeliveries(ctx, n, ids, shape{subscriptions: len(ids), asset: asset})
	r.logf("%d deliveries loaded in %.1f s", n, time.Since(began).Seconds())
	return err
}

// streamsOf is over how many streams a backlog is spread: as asked for, or each delivery
// is one of its own.
func streamsOf(n, asked int) int { return min(cmp.Or(asked, n), n) }

// fade delivers for a while out of n deliveries.
func (r *run) fade(ctx context.Context, endpoint string, n int, duration time.Duration, hold bool) (f faded, err error) {
	d, err := r.newDatabase(ctx, connections)
	if err != nil {
		return f, err
	}
	if err := r.ready(ctx, d, endpoint, n); err != nil {
		return f, err
	}
	earlier, err := received(ctx, endpoint)
	if err != nil {
		return f, err
	}
	if hold {
		release, err := d.holdSnapshot(ctx)
		if err != nil {
			return f, err
		}
		defer func() { err = errors.Join(err, release()) }()
	}
	w, err := r.newDispatch(d, n, delivery.Config{})
	if err != nil {
		return f, err
	}
	// A window begins and ends when the dispatcher is at work.
	working, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- w.run(working) }()
	width := window(duration)
	f.first = w.rate(ctx, width)
	_ = pause(ctx, duration-2*width) // what ends it ends the next, too
	f.last = w.rate(ctx, width)
	exhausted := w.end.Load() > 0
	stop()
	if err := errors.Join(<-done, ctx.Err()); err != nil {
		return f, err
	}
	f.n = int(w.delivered.Load())
	r.logf("held %v: %.0f/s at first, %.0f/s at last, %d in all", hold, f.first, f.last, f.n)
	if exhausted {
		return f, fmt.Errorf("all %d deliveries were made before %v were over; give a larger -n", n, duration)
	}
	if err := receivedAll(ctx, endpoint, earlier+f.n); err != nil {
		return f, err
	}
	return f, d.checkPart(ctx, n, f.n)
}

// holdSnapshot lets another session hold a snapshot until it is released.
func (d *database) holdSnapshot(ctx context.Context) (release func() error, err error) {
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM postlane.subscriptions")
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return func() error {
		// If the snapshot was not held to the end, nothing was measured.
		_, err := conn.Exec(ctx, "SELECT count(*) FROM postlane.subscriptions; COMMIT")
		return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}, nil
}
