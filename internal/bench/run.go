package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/postgres"
	"github.com/postlane-go/postlane/internal/receiver"
)

// run is what a scenario works with: a server, a first database on it, and what must be
// undone.
type run struct {
	Config
	*database

	server  string // the URL of a database of it
	version string
	guard   *guard.Guard
	sender  *sender.Sender
	undo    []func() error
}

func (r *run) logf(format string, args ...any) { fmt.Fprintf(r.Log, format+"\n", args...) }

// logger tells of what should not happen during a measurement.
func (r *run) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r.Log, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func (r *run) close() error {
	var errs []error
	for _, undo := range slices.Backward(r.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

func (r *run) open(ctx context.Context) (err error) {
	if r.server = r.DatabaseURL; r.server == "" {
		if err := r.startServer(ctx); err != nil {
			return err
		}
	}
	if r.guard, err = guard.New(guard.Policy{Development: true}); err != nil {
		return err
	}
	if r.database, err = r.newDatabase(ctx); err != nil {
		return err
	}
	if err := r.pool.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&r.version); err != nil {
		return err
	}
	r.sender, err = sender.New(sender.Config{Guard: r.guard, IdleConnsPerHost: 2048, IdleConns: 4096})
	if err != nil {
		return err
	}
	r.undo = append(r.undo, func() error { r.sender.Close(); return nil })
	return nil
}

func (r *run) startServer(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "postlane-bench-")
	if err != nil {
		return err
	}
	r.undo = append(r.undo, func() error { return os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the server may run as another user
		return err
	}
	r.logf("starting a private PostgreSQL")
	server, err := postgres.Start(ctx, postgres.Config{Dir: filepath.Join(dir, "postgres"), SharedBuffers: "1GB", Settings: map[string]string{"max_wal_size": "4GB"}})
	if err != nil {
		return err
	}
	r.undo = append(r.undo, server.Stop)
	r.server = server.URL("postgres")
	return nil
}

// receive starts a receiver in a process of its own that only counts, and returns its
// URL.
func (r *run) receive(ctx context.Context) (string, error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, "receive", "-light", "-address", "127.0.0.1:0", "-delay", r.Delay.String())
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	r.undo = append(r.undo, func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // its verdict is of no interest
		return nil
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), "receiving on "); ok {
			address, _, _ := strings.Cut(rest, " ")
			go func() {
				for lines.Scan() { // keep its pipe empty
				}
			}()
			return strings.TrimSuffix(address, "/"), nil
		}
	}
	return "", errors.New("the receiver did not start")
}

// received returns how many requests a receiver has counted.
func received(ctx context.Context, endpoint string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/", http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var v receiver.Verdict
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return 0, fmt.Errorf("the receiver's verdict: %w", err)
	}
	return int(v.Requests), nil
}

// receivedAll fails unless a receiver has counted exactly n requests.
func receivedAll(ctx context.Context, endpoint string, n int) error {
	if got, err := received(ctx, endpoint); err != nil || got != n {
		return errors.Join(err, fmt.Errorf("the receiver has counted %d requests of %d", got, n))
	}
	return nil
}

func round(f float64) int64 { return int64(f + 0.5) }

// ratio is a over b to three decimals.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return float64(int64(a/b*1000+0.5)) / 1000
}

// median is the middle one of a list that is not empty.
func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
