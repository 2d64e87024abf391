// Command regress runs a small version of each scenario of `postlane bench`, and fails
// where a figure is grossly worse than it was: about a factor of two, for it runs on
// machines that do other things meanwhile. What fails is tried again; a regression fails
// each time.
//
//	regress path/to/postlane
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/postlane-go/postlane/internal/postgres"
)

const tries = 3

// check is a scenario, and what its figures may be.
type check struct {
	command string
	bounds  []bound
}

// bound is what a figure has to be. Its name is a path through the objects.
type bound struct {
	figure      string
	least, most float64
}

func atLeast(figure string, x float64) bound { return bound{figure: figure, least: x, most: 1e300} }
func atMost(figure string, x float64) bound  { return bound{figure: figure, most: x} }

var checks = []check{
	{"claim-flat -n 20000", []bound{
		atMost("shapes.uniform", 2.5), atMost("shapes.deep", 2.5), atMost("shapes.hot", 3.5), atMost("shapes.null-asset", 3.5),
		atMost("shapes.backoff", 8), atMost("shapes.paused", 2.5), atMost("shapes.many-subs", 2.5),
	}},
	{"throughput -n 8000 -duration 500ms", []bound{atLeast("ratio", 0.15), atLeast("own_streams.ratio", 0.15)}},
	{"throughput -n 4000 -duration 500ms -delay 50ms", []bound{atLeast("ratio", 0.1), atLeast("own_streams.ratio", 0.15)}},
	{"enqueue -duration 2s", []bound{atLeast("ratios.1", 0.35), atLeast("ratios.8", 0.35), atLeast("ratios.32", 0.3)}},
	{"latency -duration 2s", []bound{atMost("p50_ms", 20)}},
	{"neighbour -n 10000 -duration 2s", []bound{atMost("p50_ratio", 4)}},
	{"hot-stream -n 1000 -duration 500ms", []bound{atLeast("ratio", 0.008)}},
	{"held-snapshot -n 150000 -duration 4s", []bound{atLeast("ratio", 0.35), atLeast("free_ratio", 0.35)}},
	{"memory -n 20000 -duration 2s", []bound{atMost("rss_mb", 100)}},
	{"soak -n 5000 -duration 5s", []bound{atLeast("ratio", 0.45), atLeast("hot_share", 0.9)}},
	{"outage -n 10000", []bound{atMost("rss_mb", 120)}},
	{"idle -duration 2s", []bound{atMost("statements_per_s", 10)}},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: regress path/to/postlane")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "regress:", err)
		os.Exit(1)
	}
}

const databaseURL = "POSTLANE_DATABASE_URL"

// run makes all checks, on one PostgreSQL: a private one that does not wait for its disk,
// unless the environment names another.
func run(ctx context.Context, program string) (err error) {
	if os.Getenv(databaseURL) == "" {
		dir, err := os.MkdirTemp("", "postlane-regress-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		if err := os.Chmod(dir, 0o755); err != nil { // the server may run as another user
			return err
		}
		server, err := postgres.Start(ctx, postgres.Config{Dir: filepath.Join(dir, "postgres"), NoSync: true})
		if err != nil {
			return err
		}
		defer server.Stop()
		if err := os.Setenv(databaseURL, server.URL("postgres")); err != nil {
			return err
		}
	}
	failed := 0
	for _, c := range checks {
		if !c.hold(ctx, program) {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d small benchmarks are grossly worse than they were", failed, len(checks))
	}
	return nil
}

// hold tries until all bounds are kept, and says what came of it.
func (c check) hold(ctx context.Context, program string) bool {
	for try := range tries {
		began := time.Now()
		said, err := c.try(ctx, program)
		if err == nil {
			fmt.Printf("ok   %-46s %s (%.1f s)\n", c.command, said, time.Since(began).Seconds())
			return true
		}
		fmt.Printf("FAIL %-46s try %d of %d: %v\n", c.command, try+1, tries, err)
		if ctx.Err() != nil {
			break
		}
	}
	return false
}

func (c check) try(ctx context.Context, program string) (said string, err error) {
	cmd := exec.CommandContext(ctx, program, append([]string{"bench"}, append(strings.Fields(c.command), "-json")...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it has to clean up
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, &log)
	}
	var result map[string]any
	if err := json.Unmarshal(out, &result); err != nil {
		return "", err
	}
	var figures []string
	for _, b := range c.bounds {
		x, ok := lookUp(result, b.figure)
		switch {
		case !ok:
			return "", fmt.Errorf("there is no figure %s in %s", b.figure, out)
		case x < b.least:
			return "", fmt.Errorf("%s is %v, less than %v\n%s", b.figure, x, b.least, out)
		case x > b.most:
			return "", fmt.Errorf("%s is %v, more than %v\n%s", b.figure, x, b.most, out)
		}
		figures = append(figures, fmt.Sprintf("%s=%v", b.figure, x))
	}
	return strings.Join(figures, " "), nil
}

// lookUp follows a path through objects.
func lookUp(object map[string]any, path string) (float64, bool) {
	name, rest, deeper := strings.Cut(path, ".")
	if deeper {
		inner, ok := object[name].(map[string]any)
		if !ok {
			return 0, false
		}
		return lookUp(inner, rest)
	}
	x, ok := object[name].(float64)
	return x, ok
}
