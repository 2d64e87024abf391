package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/postlane-go/postlane/internal/sdnotify"
)

// supervised tells systemd, where that has started the server, when it is ready, that it
// is alive, and when it stops.
type supervised struct {
	systemd sdnotify.Supervisor
	log     *slog.Logger
	client  http.Client
	// stopping ends when the server is told to stop, and alive when it has.
	stopping, alive context.Context
	watching        sync.WaitGroup
	end             func()
}

func newSupervised(ctx context.Context, log *slog.Logger) *supervised {
	s := &supervised{systemd: sdnotify.FromEnv(), log: log, stopping: ctx}
	s.client.Transport = &http.Transport{DisableKeepAlives: true} // and no proxy
	alive, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unregister := context.AfterFunc(ctx, func() { s.tell("STOPPING=1") })
	s.alive, s.end = alive, func() {
		unregister()
		cancel()
		s.watching.Wait()
	}
	return s
}

// ready is called once requests are answered.
func (s *supervised) ready(address net.Addr) {
	s.tell("READY=1\nSTATUS=listening on " + address.String())
	s.watching.Go(func() {
		s.systemd.Watch(s.alive, func(ctx context.Context) error { return s.check(ctx, address) })
	})
}

// check asks the server whether it is alive. While it stops it answers nobody any more,
// and how long that may take is TimeoutStopSec's to say. The database is no part of the
// question: starting again does not mend it.
func (s *supervised) check(ctx context.Context, address net.Addr) error {
	if s.isStopping() {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address.String()+"/healthz", nil)
	if err != nil {
		return err
	}
	answer, err := s.client.Do(request)
	if err == nil {
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("/healthz answers %d", answer.StatusCode)
		}
	}
	if err != nil && !s.isStopping() {
		s.log.Error("the server does not answer itself; systemd will start it again if that goes on", "error", err)
	}
	return err
}

func (s *supervised) isStopping() bool { return s.stopping.Err() != nil }

func (s *supervised) tell(lines string) {
	if err := s.systemd.Notify(lines); err != nil {
		s.log.Warn("cannot notify systemd", "error", err)
	}
}
