package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
)

// trickleRate is how many events a second are written where latency is measured.
const trickleRate = 100

// hangPath is that of an endpoint which never answers.
const hangPath = "/hang"

// arrivals is a receiver in this process, so that one clock tells when an event was
// committed and when it arrived.
type arrivals struct {
	url     string
	hanging atomic.Int64
	mu      sync.Mutex
	at      map[string]time.Time
}

// watchArrivals starts a receiver, which ends with the run.
func (r *run) watchArrivals() (*arrivals, error) {
	a := &arrivals{at: map[string]time.Time{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a.url = "http://" + listener.Addr().String()
	server := &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // until it is closed
	r.undo = append(r.undo, func() error {
		err := server.Close()
		serving.Wait()
		return err
	})
	return a, nil
}

func (a *arrivals) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	now := time.Now()
	_, _ = io.Copy(io.Discard, req.Body) // a sender that hangs up is no news here
	if req.URL.Path == hangPath {
		a.hanging.Add(1)
		defer a.hanging.Add(-1)
		<-req.Context().Done()
		return
	}
	a.mu.Lock()
	a.at[req.Header.Get("Webhook-Id")] = now
	a.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// latencies are how long events took, in ascending order.
type latencies []time.Duration

// ms returns a percentile in milliseconds.
func (l latencies) ms(percent float64) float64 {
	i := int(math.Ceil(float64(len(l))*percent/100)) - 1
	return math.Round(l[max(i, 0)].Seconds()*1e6) / 1e3
}

// trickle writes events of the first tenant for a while, each in a transaction of its own,
// and returns how long each took from its commit to its arrival.
func (d *database) trickle(ctx context.Context, a *arrivals, duration time.Duration) (latencies, error) {
	n := int(duration.Seconds() * trickleRate)
	ids, committed, errs := make([]string, n), make([]time.Time, n), make([]error, n)
	tick := time.NewTicker(time.Second / trickleRate)
	defer tick.Stop()
	var writing sync.WaitGroup
	for i := range n {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		// A commit that takes long holds up none of the others.
		writing.Go(func() {
			ids[i], errs[i] = d.write(ctx, fmt.Sprintf("asset-%d", i))
			committed[i] = time.Now()
		})
	}
	writing.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	list := make(latencies, n)
	for i, id := range ids {
		at, err := a.await(ctx, id)
		if err != nil {
			return nil, err
		}
		list[i] = max(at.Sub(committed[i]), 0) // it may arrive before the commit returns
	}
	slices.Sort(list)
	return list, nil
}

func (d *database) write(ctx context.Context, asset string) (id string, err error) {
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		written, err := delivery.Enqueue(ctx, tx, delivery.Event{Tenant: tenant(0), Type: "asset.updated", Asset: asset, Payload: body})
		if err == nil {
			id = written[0].ID
		}
		return err
	})
	return id, err
}

// await returns when an event arrived. One that has not after long is lost.
func (a *arrivals) await(ctx context.Context, id string) (time.Time, error) {
	for began := time.Now(); time.Since(began) < 10*time.Second; {
		a.mu.Lock()
		at, ok := a.at[id]
		a.mu.Unlock()
		if ok {
			return at, nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return time.Time{}, err
		}
	}
	return time.Time{}, fmt.Errorf("event %s has not arrived", id)
}
