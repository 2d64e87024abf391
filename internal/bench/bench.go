// Package bench measures Postlane against what the same machine does without it. Every
// figure is a ratio whose two sides are taken in one run, for machines differ and are
// noisy; the absolute figures beside it are for orientation. A scenario whose work was
// not done as it should be fails, and prints no figure.
package bench

import (
	"context"
	"errors"
	"io"
	"time"
)

// Config says what to measure and where.
type Config struct {
	// DatabaseURL is a PostgreSQL in which databases may be made. Default: a
	// private one from the server binaries of this machine, with fsync on.
	DatabaseURL string
	// N is the number of deliveries or events; its default is the scenario's.
	N int
	// Streams is how many streams they are spread over, where the scenario leaves
	// the choice; its default is the scenario's.
	Streams int
	// Delay is how long the receiver takes to answer.
	Delay time.Duration
	// Duration is how long each timed part lasts; its default is the scenario's.
	Duration time.Duration
	// Full runs the sizes that take long.
	Full bool
	// Log is told what goes on.
	Log io.Writer
}

// Scenario measures something and returns its figures, ready for JSON.
type Scenario struct {
	Name, Usage string
	run         func(context.Context, *run) (map[string]any, error)
	// statements says that it counts the database's statements.
	statements bool
}

// Scenarios are all there are.
var Scenarios = []Scenario{
	{Name: "claim-flat", Usage: "time per claimed delivery with a large backlog, over the same with a backlog of 1,000", run: claimFlat},
	{Name: "throughput", Usage: "deliveries per second end to end, over the rate of the same POSTs without a database", run: throughput},
	{Name: "enqueue", Usage: "transactions per second with an Enqueue, over the same with a plain INSERT of the same bytes", run: enqueue},
	{Name: "latency", Usage: "from commit to arrival at the receiver, 100 events a second, across processes", run: latency, statements: true},
	{Name: "neighbour", Usage: "99th percentile of a healthy subscription's latency beside one that hangs with a large backlog, over the same alone", run: neighbour},
	{Name: "hot-stream", Usage: "deliveries per second of one deep stream, over a sequential client without a database", run: hotStream},
	{Name: "held-snapshot", Usage: "deliveries per second at the end over the beginning, while another session holds a snapshot and while none does", run: heldSnapshot},
	{Name: "memory", Usage: "memory of a server with a large backlog due", run: memory},
	{Name: "soak", Usage: "deliveries per second at the end over the beginning of a long run at half the greatest rate, and what grows meanwhile", run: soak},
	{Name: "scale", Usage: "deliveries per second by more processes on one database, and by one on more databases", run: scale},
	{Name: "outage", Usage: "three days in which every endpoint fails, shifted away, and whether all that waited arrives then, in order and in little memory", run: outage},
	{Name: "idle", Usage: "statements per second and CPU of a server with nothing to do", run: idle, statements: true},
}

// Run measures a scenario.
func Run(ctx context.Context, s Scenario, c Config) (result map[string]any, err error) {
	r := &run{Config: c, statements: s.statements}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	if result, err = s.run(ctx, r); err != nil {
		return nil, err
	}
	result["scenario"] = s.Name
	result["postgres"] = r.version
	return result, nil
}
