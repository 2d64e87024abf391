package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/postlane-go/postlane/internal/postgres"
)

// runAll takes every measurement of the plan, in turns: each peer once, and then all
// of them again, so that what else the machine does meets all alike. Each is a process
// of its own.
func runAll(ctx context.Context, args []string) (err error) {
	a := &all{}
	flags := flag.NewFlagSet("all", flag.ContinueOnError)
	flags.StringVar(&a.server, "database-url", "", "a PostgreSQL in which databases may be made (default: a private one with fsync on)")
	flags.StringVar(&a.out, "out", "results", "the directory to write results.jsonl and results.md to")
	rounds := flags.Int("rounds", 3, "how often to take each measurement")
	quick := flags.Bool("quick", false, "see that all of it works; the figures say nothing")
	only := flags.String("only", "", "only what has this in its table's heading or its name, such as 'Stage' or 'river'")
	flags.Float64Var(&a.mostForeign, "most-foreign", 0.06, "take a measurement again, up to twice, if more of the CPU than this part went to something else")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *quick {
		*rounds, a.mostForeign = 1, 1
	}
	if err := os.MkdirAll(a.out, 0o755); err != nil {
		return err
	}
	stop, err := a.startPostgres(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for round := range *rounds {
		for _, m := range plan(*quick) {
			if !strings.Contains(m.group()+": "+m.name(), *only) || m.Peer == "graphile-worker" && !hasGraphile() {
				continue
			}
			if err := a.take(ctx, m, round+1); err != nil {
				return fmt.Errorf("%s: %s: %w", m.group(), m.name(), err)
			}
		}
	}
	tables, err := os.Create(filepath.Join(a.out, "results.md"))
	if err != nil {
		return err
	}
	defer tables.Close()
	return writeTables(a.resultsFile(), tables)
}

// all is a run of the plan.
type all struct {
	server, out string
	mostForeign float64
}

func (a *all) resultsFile() string { return filepath.Join(a.out, "results.jsonl") }

// startPostgres starts a private server, unless one was named.
func (a *all) startPostgres(ctx context.Context) (stop func() error, err error) {
	if a.server != "" {
		return func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp("", "postlane-bench-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the server may run as another user
		return nil, err
	}
	server, err := postgres.Start(ctx, postgres.Config{
		Dir: filepath.Join(dir, "postgres"), SharedBuffers: "1GB", Settings: map[string]string{"max_wal_size": "4GB"},
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	a.server = server.URL("postgres")
	return func() error { return errors.Join(server.Stop(), os.RemoveAll(dir)) }, nil
}

// take takes a measurement, again if something else was at work, and keeps the result.
func (a *all) take(ctx context.Context, m measurement, round int) error {
	var r *result
	for range 3 {
		mark := markCPU()
		var err error
		if r, err = a.measure(ctx, m); err != nil {
			return err
		}
		r.Foreign = mark.foreign()
		fmt.Fprintf(os.Stderr, "%s: %s: %.0f/s; %s\n", m.group(), m.name(), r.Rate, r.remarks())
		if r.Foreign == nil || *r.Foreign <= a.mostForeign {
			break
		}
	}
	r.Round = round
	file, err := os.OpenFile(a.resultsFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	return json.NewEncoder(file).Encode(r)
}

// measure runs this program again for one measurement, and for its endpoint.
func (a *all) measure(ctx context.Context, m measurement) (*result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	args := []string{"one", "-database-url", a.server, "-measurement", string(text)}
	if m.Workload == "deliver" {
		url, stop, err := startEndpoint(ctx, self, m)
		if err != nil {
			return nil, err
		}
		defer stop()
		args = append(args, "-endpoint", url)
	}
	command := exec.CommandContext(ctx, self, args...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, err
	}
	r := &result{}
	return r, json.NewDecoder(bytes.NewReader(output)).Decode(r)
}

// startEndpoint starts the process that answers deliveries.
func startEndpoint(ctx context.Context, self string, m measurement) (url string, stop func(), err error) {
	command := exec.CommandContext(ctx, self, "receive", "-delay", m.Delay.String())
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := command.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("the endpoint did not start: %w", err)
	}
	return strings.TrimSpace(line), stop, nil
}
