package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// bulkSize is how many messages a bulk insert has.
	bulkSize = 1000
	// runDatabase is the database of a measurement.
	runDatabase = "bench_run"
	// warmUp is how long a backlog is worked before counting begins.
	warmUp = 2 * time.Second
)

// result is what a measurement found.
type result struct {
	measurement
	Version string `json:"version"`
	// Rate is messages a second.
	Rate    float64 `json:"rate"`
	Count   int64   `json:"count"`
	Seconds float64 `json:"seconds"`
	// Lost are messages that are recorded as done, and no worker had them.
	Lost int64 `json:"lost,omitempty"`
	// OutOfOrder are deliveries that arrived after a later one of their stream.
	OutOfOrder int64 `json:"out_of_order,omitempty"`
	Failed     int64 `json:"failed,omitempty"`
	// Foreign is the part of the machine's CPU that went to something else, where
	// that can be told.
	Foreign *float64 `json:"foreign_cpu,omitempty"`
	// Round counts the repetitions of the whole plan, from 1.
	Round int `json:"round"`
}

// runOne takes one measurement, given as JSON, and prints its result as JSON.
func runOne(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("one", flag.ContinueOnError)
	server := flags.String("database-url", "", "a PostgreSQL in which databases may be made")
	endpoint := flags.String("endpoint", "", "the URL of a running `bench receive`, for deliveries")
	what := flags.String("measurement", "", `what to measure, such as {"workload":"stage","peer":"river","profile":"default","concurrency":8,"duration_ns":1e10}`)
	if err := flags.Parse(args); err != nil {
		return err
	}
	m := measurement{Spread: 1}
	if err := json.Unmarshal([]byte(*what), &m); err != nil {
		return fmt.Errorf("-measurement: %w", err)
	}
	r, err := measure(ctx, m, databases{*server}, *endpoint)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func measure(ctx context.Context, m measurement, server databases, endpoint string) (*result, error) {
	if m.Peer == "none" {
		return plainRequests(ctx, m, endpoint)
	}
	newPeer, ok := peers[m.Peer]
	if !ok {
		return nil, fmt.Errorf("there is no peer %q", m.Peer)
	}
	if m.Workload == "deliver" {
		m.endpoint = endpoint
	}
	p, err := newPeer(&m)
	if err != nil {
		return nil, err
	}
	template := ""
	if m.Backlog > 0 {
		if err := server.prepare(ctx, &m, p); err != nil {
			return nil, err
		}
		template = m.template()
	}
	if err := server.create(ctx, runDatabase, template); err != nil {
		return nil, err
	}
	defer server.drop(ctx, runDatabase) //nolint:errcheck // the next one makes it anew
	r := &result{measurement: m, Version: p.version()}
	work := map[string]func(context.Context, *result, peer, databases) error{"stage": stage, "relay": relay, "deliver": deliver}[m.Workload]
	if work == nil {
		return nil, fmt.Errorf("there is no workload %q", m.Workload)
	}
	if err := work(ctx, r, p, server); err != nil {
		return nil, err
	}
	return r, ctx.Err()
}

// stage commits transactions with one message each, for a while.
func stage(ctx context.Context, r *result, p peer, server databases) error {
	pool, err := server.open(ctx, runDatabase, r.Concurrency)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := p.setup(ctx, pool); err != nil {
		return err
	}
	var seq atomic.Int64
	err = r.hammer(func() error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return p.stage(ctx, tx, newBody(seq.Add(1))) })
	})
	if err != nil {
		return err
	}
	left, err := p.remaining(ctx, pool)
	if err == nil && left != r.Count {
		err = fmt.Errorf("%d were staged, and %d are there", r.Count, left)
	}
	return err
}

// hammer calls one from as many goroutines as the measurement says, for as long.
func (r *result) hammer(one func() error) error {
	var done atomic.Int64
	var first atomic.Pointer[error]
	var workers sync.WaitGroup
	began := time.Now()
	for range r.Concurrency {
		workers.Go(func() {
			for time.Since(began) < r.Duration {
				if err := one(); err != nil {
					first.CompareAndSwap(nil, &err)
					return
				}
				done.Add(1)
			}
		})
	}
	workers.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	r.counted(done.Load(), time.Since(began))
	return nil
}

func (r *result) counted(n int64, d time.Duration) {
	r.Count, r.Seconds, r.Rate = n, d.Seconds(), float64(n)/d.Seconds()
}

// plainRequests sends without a database.
func plainRequests(ctx context.Context, m measurement, endpoint string) (*result, error) {
	r := &result{measurement: m, Version: "net/http"}
	s := newPoster(endpoint, m.Concurrency)
	var seq atomic.Int64
	return r, r.hammer(func() error { return s.post(ctx, newBody(seq.Add(1))) })
}

// relay works a backlog whose size a feeder keeps, with workers that do nothing. What
// the feeder costs is a part of it.
func relay(ctx context.Context, r *result, p peer, server databases) error {
	pool, err := server.open(ctx, runDatabase, p.conns()+2)
	if err != nil {
		return err
	}
	defer pool.Close()
	var handled atomic.Int64
	stop, err := p.work(ctx, pool, func(context.Context, []byte) error { handled.Add(1); return nil })
	if err != nil {
		return err
	}
	feeder := newFeeder(ctx, pool, p, int64(r.Backlog), &handled)
	pause(ctx, warmUp)
	before, began := handled.Load(), time.Now()
	pause(ctx, r.Duration)
	r.counted(handled.Load()-before, time.Since(began))
	staged, err := feeder.stop()
	if err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	left, err := p.remaining(ctx, pool)
	r.Lost = max(staged-left-handled.Load(), 0)
	return err
}

// deliver works a backlog until it is empty or the time is over.
func deliver(ctx context.Context, r *result, p peer, server databases) error {
	pool, err := server.open(ctx, runDatabase, p.conns())
	if err != nil {
		return err
	}
	defer pool.Close()
	earlier, err := seenBy(ctx, r.endpoint)
	if err != nil {
		return err
	}
	var handled, failed, first atomic.Int64
	s := newPoster(r.endpoint, max(r.Concurrency, 64))
	began := time.Now()
	stop, err := p.work(ctx, pool, func(ctx context.Context, body []byte) error {
		if body != nil {
			if err := s.post(ctx, body); err != nil {
				failed.Add(1)
				return err
			}
		}
		if handled.Add(1) == 1 {
			first.Store(int64(time.Since(began)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Counted from the first on: some take a while to start.
	worked := func() time.Duration { return time.Since(began) - time.Duration(first.Load()) }
	for ctx.Err() == nil && handled.Load() < int64(r.Backlog) && (first.Load() == 0 || worked() < r.Duration) {
		if first.Load() == 0 && worked() > time.Minute {
			return errors.Join(errors.New("nothing was delivered in a minute"), stop())
		}
		pause(ctx, 2*time.Millisecond)
	}
	if err := stop(); err != nil {
		return err
	}
	took := worked()
	left, err := p.remaining(ctx, pool)
	if err != nil {
		return err
	}
	seen, err := seenBy(ctx, r.endpoint)
	if err != nil {
		return err
	}
	done := int64(r.Backlog) - left
	arrived := seen.Requests - earlier.Requests
	r.counted(min(done, arrived), took)
	r.Lost, r.OutOfOrder, r.Failed = max(done-arrived, 0), seen.OutOfOrder-earlier.OutOfOrder, failed.Load()
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// feeder keeps a backlog at its size.
type feeder struct {
	end    context.CancelFunc
	done   chan error
	staged int64
}

func newFeeder(ctx context.Context, pool *pgxpool.Pool, p peer, size int64, handled *atomic.Int64) *feeder {
	ctx, end := context.WithCancel(ctx)
	f := &feeder{end: end, done: make(chan error, 1), staged: size}
	go func() {
		f.done <- func() error {
			for ctx.Err() == nil {
				if f.staged-handled.Load() >= size {
					pause(ctx, time.Millisecond)
					continue
				}
				// Without ctx: a bulk insert that is cut has, or has not, staged.
				if err := p.bulk(context.WithoutCancel(ctx), pool, bodies(f.staged, bulkSize)); err != nil {
					return err
				}
				f.staged += bulkSize
			}
			return nil
		}()
	}()
	return f
}

// stop ends the feeder, and says how many messages were staged in all.
func (f *feeder) stop() (int64, error) {
	f.end()
	err := <-f.done
	return f.staged, err
}
