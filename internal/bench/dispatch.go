package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postlane-go/postlane/delivery"
)

// dispatch is a dispatcher of this process at work, and what came of it.
type dispatch struct {
	dispatcher        *delivery.Dispatcher
	delivered, failed atomic.Int64
	// n is how many deliveries there are to make; 0: until its context ends.
	n     int64
	end   atomic.Int64 // when the last of them was settled, since began
	began time.Time
	stop  context.CancelFunc
}

// newDispatch returns a dispatcher of n deliveries, with what config says beyond that.
func (r *run) newDispatch(d *database, n int, config delivery.Config) (*dispatch, error) {
	w := &dispatch{n: int64(n)}
	config.Store, config.Logger = d.store, r.logger()
	if config.Sender == nil {
		config.Sender = r.sender
	}
	config.Observer.Settled = func(o delivery.Observation) {
		if o.State != delivery.SettledDelivered {
			w.failed.Add(1)
			w.stop()
		} else if w.delivered.Add(1) == w.n {
			w.end.Store(int64(time.Since(w.began)))
			w.stop()
		}
	}
	var err error
	w.dispatcher, err = delivery.New(config)
	return w, err
}

// run works until all is delivered, ctx ends or an attempt fails, which nothing here is
// meant to do.
func (w *dispatch) run(ctx context.Context) error {
	ctx, w.stop = context.WithCancel(ctx)
	defer w.stop()
	w.began = time.Now()
	if err := w.dispatcher.Run(ctx); err != nil {
		return err
	}
	if failed := w.failed.Load(); failed > 0 {
		return fmt.Errorf("%d attempts were not delivered, %d were", failed, w.delivered.Load())
	}
	return nil
}

// drain delivers all n deliveries that wait, by one dispatcher, and returns their rate.
func (r *run) drain(ctx context.Context, d *database, n int, config delivery.Config) (float64, error) {
	w, err := r.newDispatch(d, n, config)
	if err != nil {
		return 0, err
	}
	if err := w.run(ctx); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if w.end.Load() == 0 {
		return 0, errors.New("the dispatcher ended before its work")
	}
	return float64(n) / time.Duration(w.end.Load()).Seconds(), nil
}

// rate returns how many deliveries are made a second, over a while from now.
func (w *dispatch) rate(ctx context.Context, while time.Duration) float64 {
	before, began := w.delivered.Load(), time.Now()
	_ = pause(ctx, while) // whoever asked sees ctx end
	return float64(w.delivered.Load()-before) / time.Since(began).Seconds()
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
