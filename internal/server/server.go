// Package server is the process behind `postlane serve`: an HTTP listener and a
// dispatcher.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/api"
	"github.com/postlane-go/postlane/internal/console"
	"github.com/postlane-go/postlane/internal/metrics"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/retention"
	"github.com/postlane-go/postlane/internal/settings"
)

// Config is what a server needs.
type Config struct {
	Settings settings.Settings
	Pool     *pgxpool.Pool
	Store    *delivery.Store
	// Dispatcher is its configuration; Store, Logger and Observer are filled in. Sender is
	// required: the API's test requests go through it too.
	Dispatcher delivery.Config
	Logger     *slog.Logger
	// Ready, if set, is told the address once requests are answered.
	Ready func(net.Addr)
}

// Run serves until ctx ends, and then stops cleanly: no new request, open ones finish,
// the dispatcher gives back what it holds.
func Run(ctx context.Context, c Config) error {
	if err := migrate.Check(ctx, c.Pool, db.Schema()); errors.Is(err, migrate.ErrBehind) {
		return fmt.Errorf("%w; run: postlane migrate up", err)
	} else if errors.Is(err, migrate.ErrAhead) {
		c.Logger.Warn("a newer release has migrated this database", "detail", err)
	} else if err != nil {
		return fmt.Errorf("the database cannot be read: %w", err)
	}
	counts, err := metrics.New(c.Pool)
	if err != nil {
		return err
	}
	c.Dispatcher.Store, c.Dispatcher.Logger, c.Dispatcher.Observer = c.Store, c.Logger, counts.Observer()
	dispatcher, err := delivery.New(c.Dispatcher)
	if err != nil {
		return err
	}
	if err := counts.Watch(dispatcher); err != nil {
		return err
	}
	v1, err := api.New(api.Config{
		Pool: c.Pool, Store: c.Store, Sender: c.Dispatcher.Sender, OperatorKey: c.Settings.OperatorKey,
		CursorKey: c.Settings.Keyring.Derive("cursors"), Rate: c.Settings.Rate, Metrics: counts, Logger: c.Logger,
	})
	if err != nil {
		return err
	}
	web, err := console.New(console.Config{
		Pool: c.Pool, Store: c.Store, Sender: c.Dispatcher.Sender, OperatorKey: c.Settings.OperatorKey, Logger: c.Logger,
	})
	if err != nil {
		return err
	}
	listen := c.Dispatcher.Listen
	if listen == nil && !c.Dispatcher.NoListen {
		listen = c.Pool.Config().ConnConfig.Copy()
	}
	relay, err := newRelay(c.Settings.Relay, c.Pool, listen, c.Logger)
	if err != nil {
		return err
	}
	if relay != nil {
		if err := counts.WatchRelay(relay); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", c.Settings.Listen)
	if err != nil {
		return fmt.Errorf("cannot listen on %s (-listen): %w", c.Settings.Listen, err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	h := http.Server{
		Handler:           counts.Requests(handler(readiness{c.Pool, dispatcher, running.Done()}, v1, web)),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(c.Logger.Handler(), slog.LevelWarn),
	}
	var parts sync.WaitGroup
	failed := make(chan error, 3)
	parts.Go(func() {
		failed <- dispatcher.Run(running)
		stop()
	})
	parts.Go(func() { web.Count(running) })
	parts.Go(func() {
		retention.Run(running, retention.Config{Pool: c.Pool, Store: c.Store, Keep: c.Settings.Keep, Counted: counts.Pruned, Logger: c.Logger})
	})
	if relay != nil {
		parts.Go(func() {
			failed <- relay.Run(running)
			stop()
		})
	}
	parts.Go(func() {
		if err := h.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serving on %s: %w", listener.Addr(), err)
			stop()
		}
	})
	c.Logger.Info("listening", "address", listener.Addr().String())
	if c.Ready != nil {
		c.Ready(listener.Addr())
	}
	<-running.Done()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = h.Shutdown(drain)
	parts.Wait()
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	return err
}

func handler(ready, v1, web http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(console.Root, web)
	mux.Handle("GET /{$}", http.RedirectHandler(console.Root, http.StatusSeeOther))
	for _, path := range []string{"/v1/", "/metrics", "/openapi.json", "/openapi-3.0.json", "/docs"} {
		mux.Handle(path, v1)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"status": "ok"})
	})
	mux.Handle("GET /readyz", ready)
	return mux
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone if this fails
}
