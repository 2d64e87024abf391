// Command torture runs Postlane under faults and judges what came of it; see
// scripts/torture. With the name of a role it is one of the run's own processes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/postlane-go/postlane/internal/torture"
	"github.com/postlane-go/postlane/internal/torture/check"
	"github.com/postlane-go/postlane/internal/torture/endpoint"
	"github.com/postlane-go/postlane/internal/torture/producer"
	"github.com/postlane-go/postlane/internal/torture/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (ok bool, err error) {
	role := ""
	if len(args) > 0 {
		role = args[0]
	}
	switch role {
	case torture.WorkerRole:
		c, err := config[worker.Config]()
		if err != nil {
			return false, err
		}
		log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		return true, worker.Run(ctx, c, os.Stdin, log)
	case torture.ProducerRole:
		c, err := config[producer.Config]()
		if err != nil {
			return false, err
		}
		return true, producer.Run(ctx, c)
	case torture.EndpointRole:
		c, err := config[endpoint.Config]()
		if err != nil {
			return false, err
		}
		return true, endpoint.Run(ctx, c, os.Stdin)
	case "check":
		if len(args) != 2 {
			return false, errors.New("check judges a run that was: name its directory")
		}
		report, err := check.Dir(args[1])
		return tell(report, err)
	}
	return perform(ctx, args)
}

func config[T any]() (c T, err error) {
	err = json.Unmarshal([]byte(os.Getenv(torture.ConfigEnv)), &c)
	return c, err
}

func perform(ctx context.Context, args []string) (bool, error) {
	c := torture.Config{Log: os.Stderr}
	flags := flag.NewFlagSet("torture", flag.ExitOnError)
	flags.Uint64Var(&c.Seed, "seed", uint64(time.Now().UnixNano()%1e6), "what the faults and events are drawn from")
	flags.DurationVar(&c.Duration, "duration", 5*time.Minute, "for how long there are faults and events")
	flags.StringVar(&c.Dir, "dir", ".postlane/torture", "where journals, logs and data are put; what is there is removed")
	flags.IntVar(&c.Workers, "workers", 3, "processes that dispatch and relay")
	flags.Float64Var(&c.Rate, "rate", 30, "transactions that begin in a second")
	kinds := flags.String("faults", "", "comma-separated kinds of faults to draw from, or none (default: all)")
	flags.BoolVar(&c.Disks, "disks", false, "mount small disks for PostgreSQL, which can be full; scripts/torture says whether it may")
	flags.BoolVar(&c.Shift, "shift", false, "shift the clocks of workers; needs the build of scripts/torture")
	_ = flags.Parse(args) // it exits
	if flags.NArg() > 0 {
		flags.Usage()
		os.Exit(2)
	}
	if *kinds != "" {
		c.Kinds = strings.Split(*kinds, ",")
	}
	var err error
	if c.Program, err = os.Executable(); err != nil {
		return false, err
	}
	return tell(torture.Run(ctx, c))
}

// tell prints what was found, the verdict last.
func tell(r *check.Report, err error) (bool, error) {
	if r == nil {
		return false, err
	}
	for _, f := range r.Findings {
		fmt.Println(f)
	}
	line, e := json.Marshal(r)
	fmt.Println(string(line))
	return r.OK() && err == nil, errors.Join(err, e)
}
