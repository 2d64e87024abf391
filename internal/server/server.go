// Package server is the process behind `postlane serve`: an HTTP listener, and a
// dispatcher for each of its databases.
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

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/api"
	"github.com/postlane-go/postlane/internal/console"
	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/metrics"
	"github.com/postlane-go/postlane/internal/settings"
)

// Config is what a server needs.
type Config struct {
	// Settings are the process's; its Databases are not read.
	Settings settings.Settings
	// Databases are one, or several that share the tenants.
	Databases []Database
	// Dispatcher is the configuration of each database's; Store, Listen, Logger and
	// Observer are filled in. Sender is required: the API's test requests go through it too.
	Dispatcher delivery.Config
	Logger     *slog.Logger
	// Ready, if set, is told the address once requests are answered.
	Ready func(net.Addr)
}

// several reports whether there is more than one database.
func (c *Config) several() bool { return len(c.Databases) > 1 }

// names are the databases', where there are several.
func (c *Config) names() (names []string) {
	if c.several() {
		for _, d := range c.Databases {
			names = append(names, d.Name)
		}
	}
	return names
}

// Run serves until ctx ends, and then stops cleanly: no new request, open ones finish,
// the dispatchers give back what they hold. It fails if its only database cannot be worked
// with; one of several is left out until it can be.
func Run(ctx context.Context, c Config) error {
	if len(c.Databases) == 0 {
		return errors.New("server: needs a database")
	}
	counts, err := metrics.New()
	if err != nil {
		return err
	}
	members := make([]*member, len(c.Databases))
	for i, d := range c.Databases {
		if members[i], err = newMember(c, d, counts); err != nil {
			return err
		}
	}
	if !c.several() {
		if err := members[0].check(ctx); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", c.Settings.Listen)
	if err != nil {
		return fmt.Errorf("cannot listen on %s (-listen): %w", c.Settings.Listen, err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	v1, web := routes(members, c.Logger)
	h := http.Server{
		Handler:           counts.Requests(handler(readiness{members, running.Done()}, v1, web)),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(c.Logger.Handler(), slog.LevelWarn),
	}
	var parts sync.WaitGroup
	failed := make(chan error, len(members)+1)
	for _, m := range members {
		parts.Go(func() {
			if c.several() {
				m.await(running)
			}
			failed <- m.run(running)
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

// routes are the API and the console of all members.
func routes(members []*member, log *slog.Logger) (v1, web http.Handler) {
	if len(members) == 1 {
		return members[0].api, members[0].console
	}
	var stores []*keys.Store
	var apis []api.Database
	var consoles []*console.Console
	for _, m := range members {
		stores = append(stores, m.keys)
		apis = append(apis, api.Database{Name: m.Name, API: m.api, Store: m.Store})
		consoles = append(consoles, m.console)
	}
	locator := keys.NewLocator(stores)
	return api.Databases(apis, locator, log), console.Databases(consoles, locator)
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
