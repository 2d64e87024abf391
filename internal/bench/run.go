package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/postgres"
)

// run is what a scenario works with: a server, a first database on it, and what must be
// undone.
type run struct {
	Config
	*database

	server  string // the URL of a database of it
	version string
	// statements asks for a PostgreSQL that counts them.
	statements bool
	guard      *guard.Guard
	sender     *sender.Sender
	undo       []func() error
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
		if err := r.startPostgres(ctx); err != nil {
			return err
		}
	}
	if r.guard, err = guard.New(guard.Policy{Development: true}); err != nil {
		return err
	}
	if r.database, err = r.newDatabase(ctx, connections); err != nil {
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

// startPostgres starts a private PostgreSQL, which counts statements if the scenario asks
// for it and the extension is there.
func (r *run) startPostgres(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "postlane-bench-")
	if err != nil {
		return err
	}
	r.undo = append(r.undo, func() error { return os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the server may run as another user
		return err
	}
	r.logf("starting a private PostgreSQL")
	config := postgres.Config{Dir: filepath.Join(dir, "postgres"), SharedBuffers: "1GB", Settings: map[string]string{"max_wal_size": "4GB"}}
	if r.statements {
		config.Settings["shared_preload_libraries"] = "pg_stat_statements"
	}
	server, err := postgres.Start(ctx, config)
	if err != nil && r.statements {
		r.logf("without pg_stat_statements: %v", err)
		delete(config.Settings, "shared_preload_libraries")
		server, err = postgres.Start(ctx, config)
	}
	if err != nil {
		return err
	}
	r.undo = append(r.undo, server.Stop)
	r.server = server.URL("postgres")
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
