// Package bench measures Postlane against what the same machine does without it. Every
// figure is a ratio whose two sides are taken in one run, for machines differ and are
// noisy; the absolute figures beside it are for orientation.
package bench

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/postgres"
)

// Config says what to measure and where.
type Config struct {
	// DatabaseURL is a PostgreSQL in which databases may be made. Default: a
	// private one from the server binaries of this machine, with fsync on.
	DatabaseURL string
	// N is the number of deliveries or events; its default is the scenario's.
	N int
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
}

// Scenarios are all there are.
var Scenarios = []Scenario{
	{"throughput", "deliveries per second end to end, over the rate of the same POSTs without a database", throughput},
	{"enqueue", "transactions per second with an Enqueue, over the same with a plain INSERT of the same bytes", enqueue},
}

// Run measures a scenario.
func Run(ctx context.Context, s Scenario, c Config) (result map[string]any, err error) {
	r := &run{Config: c}
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

// run is what a scenario works with: a database of its own, and what must be undone.
type run struct {
	Config
	version string
	pool    *pgxpool.Pool
	store   *delivery.Store
	sender  *sender.Sender
	undo    []func() error
}

func (r *run) logf(format string, args ...any) { fmt.Fprintf(r.Log, format+"\n", args...) }

func (r *run) close() error {
	var errs []error
	for _, undo := range slices.Backward(r.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

func (r *run) open(ctx context.Context) error {
	base := r.DatabaseURL
	if base == "" {
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
		base = server.URL("postgres")
	}
	url, drop, err := createDatabase(ctx, base)
	if err != nil {
		return err
	}
	r.undo = append(r.undo, drop)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.MaxConns = 48
	if _, err := migrate.Up(ctx, config.ConnConfig, db.Schema(), migrate.Config{}); err != nil {
		return err
	}
	if r.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	r.undo = append(r.undo, func() error { r.pool.Close(); return nil })
	if err := r.pool.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&r.version); err != nil {
		return err
	}
	g, err := guard.New(guard.Policy{Development: true})
	if err != nil {
		return err
	}
	if r.store, err = delivery.NewStore(r.pool, delivery.StoreConfig{Guard: g}); err != nil {
		return err
	}
	r.sender, err = sender.New(sender.Config{Guard: g, IdleConnsPerHost: 2048, IdleConns: 4096})
	if err != nil {
		return err
	}
	r.undo = append(r.undo, func() error { r.sender.Close(); return nil })
	return nil
}

// createDatabase makes a database beside the one that base names.
func createDatabase(ctx context.Context, base string) (string, func() error, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme == "" {
		return "", nil, errors.New("the database must be given as a URL, such as postgres://postgres@127.0.0.1/postgres")
	}
	name := "postlane_bench_" + strings.ToLower(rand.Text()[:8])
	exec := func(ctx context.Context, sql string) error {
		conn, err := pgx.Connect(ctx, base)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, sql)
		return err
	}
	if err := exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, err
	}
	u.Path = "/" + name
	return u.String(), func() error {
		return exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
	}, nil
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

// subscribe adds n subscriptions of tenant "bench" to the endpoint.
func (r *run) subscribe(ctx context.Context, n int, endpoint string) error {
	for i := range n {
		if _, _, err := r.store.CreateSubscription(ctx, tenant(i), delivery.Settings{URL: fmt.Sprintf("%s/%d", endpoint, i)}); err != nil {
			return err
		}
	}
	return nil
}

// tenant names the tenant of subscription i: one each, so that an event has one delivery.
func tenant(i int) string { return fmt.Sprintf("bench-%d", i) }

// body is a 500-byte JSON payload.
var body = []byte(`{"type":"asset.updated","data":{"pad":"` + strings.Repeat("0123456789abcdef", 29)[:459] + `"}}`)
