package bench

import (
	"cmp"
	"context"
	"fmt"
	"syscall"
	"time"
)

// scale delivers the same backlog by more and more processes on one database, and by one
// process on more and more databases of one PostgreSQL. On a machine whose cores are all
// taken by one process, what it shows is what the others cost.
func scale(ctx context.Context, r *run) (map[string]any, error) {
	n := cmp.Or(r.N, 60_000)
	endpoint, err := r.receive(ctx)
	if err != nil {
		return nil, err
	}
	result := map[string]any{"n": n, "delay_ms": r.Delay.Milliseconds(), "subscriptions": throughputSubscriptions, "payload_bytes": len(body)}
	for _, part := range []struct {
		name  string
		sizes []int
		fleet func(int) fleet
	}{
		{"processes", []int{1, 2, 4, 8}, func(n int) fleet { return fleet{processes: n, databases: 1} }},
		{"databases", []int{1, 2, 4}, func(n int) fleet { return fleet{processes: 1, databases: n} }},
	} {
		figures := map[string]any{}
		var alone float64
		for _, size := range part.sizes {
			rate, per, err := r.fleetRate(ctx, part.fleet(size), endpoint, n)
			if err != nil {
				return nil, fmt.Errorf("%d %s: %w", size, part.name, err)
			}
			alone = cmp.Or(alone, rate)
			r.logf("%d %s: %.0f/s", size, part.name, rate)
			figures[fmt.Sprint(size)] = map[string]any{"deliveries_per_s": round(rate), "ratio": ratio(rate, alone), "per_delivery": per}
		}
		result[part.name] = figures
	}
	return result, nil
}

// fleet is how many processes work on how many databases.
type fleet struct{ processes, databases int }

// fleetRate delivers n deliveries of 1,000 streams, spread over the fleet's databases, and
// returns the rate of the three fifths in the middle, and what a delivery costs.
func (r *run) fleetRate(ctx context.Context, f fleet, endpoint string, n int) (rate float64, per map[string]any, err error) {
	each := n / f.databases
	n = each * f.databases
	databases := make([]*database, f.databases)
	var paused []func() error
	for i := range databases {
		d, err := r.newDatabase(ctx, 4)
		if err != nil {
			return 0, nil, err
		}
		databases[i] = d
		subs, err := d.subscribe(ctx, throughputSubscriptions, endpoint)
		if err != nil {
			return 0, nil, err
		}
		for _, sub := range subs {
			if _, err := d.store.Pause(ctx, sub, ""); err != nil {
				return 0, nil, err
			}
			paused = append(paused, func() error {
				_, err := d.store.Enable(ctx, sub)
				return err
			})
		}
		if err := d.load(ctx, each, throughputSubscriptions, func(i int) string { return fmt.Sprint("asset-", i/throughputSubscriptions%10) }); err != nil {
			return 0, nil, err
		}
	}
	var pids []int
	for range f.processes {
		pid, err := r.serve(ctx, databases)
		if err != nil {
			return 0, nil, err
		}
		pids = append(pids, pid)
	}
	defer func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGTERM) // or the run's end does
		}
	}()
	earlier, err := received(ctx, endpoint)
	if err != nil {
		return 0, nil, err
	}
	before, err := fleetCost(ctx, databases, pids)
	if err != nil {
		return 0, nil, err
	}
	for _, enable := range paused {
		if err := enable(); err != nil {
			return 0, nil, err
		}
	}
	first, began, err := untilReceived(ctx, endpoint, earlier+n/5)
	if err != nil {
		return 0, nil, err
	}
	last, ended, err := untilReceived(ctx, endpoint, earlier+n/5*4)
	if err != nil {
		return 0, nil, err
	}
	for _, d := range databases {
		if err := d.awaitDelivered(ctx, each); err != nil {
			return 0, nil, err
		}
		if err := d.check(ctx, each); err != nil {
			return 0, nil, err
		}
	}
	if err := receivedAll(ctx, endpoint, earlier+n); err != nil {
		return 0, nil, err
	}
	after, err := fleetCost(ctx, databases, pids)
	if err != nil {
		return 0, nil, err
	}
	return float64(last-first) / ended.Sub(began).Seconds(), after.per(before, n), nil
}

// fleetCost returns what the databases and the processes have used so far.
func fleetCost(ctx context.Context, databases []*database, pids []int) (all cost, err error) {
	for i, d := range databases {
		c, err := d.cost(ctx)
		if err != nil {
			return all, err
		}
		all.commits += c.commits
		if i == 0 { // of the server, and so of all of them
			all.postgres, all.wal = c.postgres, c.wal
		}
	}
	for _, pid := range pids {
		used, _, _ := procStat(fmt.Sprint(pid))
		all.self += used
	}
	return all, nil
}

// untilReceived waits until a receiver has counted n requests, and returns how many it has
// then, and when.
func untilReceived(ctx context.Context, endpoint string, n int) (got int, at time.Time, err error) {
	for seen, since := 0, time.Now(); time.Since(since) < time.Minute; {
		if got, err = received(ctx, endpoint); err != nil {
			return got, at, err
		}
		if at = time.Now(); got >= n {
			return got, at, nil
		}
		if got > seen {
			seen, since = got, at
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return got, at, err
		}
	}
	return got, at, fmt.Errorf("the receiver has %d of %d requests, and no more come", got, n)
}
