package dev

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/postlane-go/postlane/internal/receiver"
)

// live writes a trickle of events until ctx ends, for three endpoints: one that is well,
// one that fails now and then, and one that is slow.
func (s *stage) live(ctx context.Context) error {
	s.tenant = "demo"
	if err := s.forget(ctx); err != nil {
		return err
	}
	for path, types := range map[string][]string{"/well": {"*"}, "/flaky": {"asset.*"}, "/slow": {expired}} {
		if _, err := s.subscribe(ctx, path, types...); err != nil {
			return err
		}
	}
	flaky := receiver.Behaviour{Answer: func(receiver.Arrival) int {
		if rand.N(10) == 0 {
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	}}
	if err := s.receiver.Behave("/flaky", flaky); err != nil {
		return err
	}
	if err := s.receiver.Behave("/slow", receiver.Behaviour{Status: http.StatusNoContent, Delay: 300 * time.Millisecond, Jitter: 300 * time.Millisecond}); err != nil {
		return err
	}
	p, err := newProducer(ctx, s.pool, s.tenant)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.config.Out, `
postlane is running, with sample events for the tenant %[1]q

  console   http://%[2]s/console/  (sign in with the API key)
  API       http://%[2]s/docs
  receiver  %[3]s/  (GET shows its verdict)
  database  psql '%[4]s'
  API key   %[5]s

Ctrl-C stops it. What the receiver sees, a line a second:
`, s.tenant, s.settings.Listen, s.endpoint, s.settings.Databases[0].URL, s.settings.OperatorKey)
	progress, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.receiver.Progress(progress, s.config.Out)
	}()
	err = tick(ctx, 150*time.Millisecond, func() error {
		_, err := p.change(ctx, fmt.Sprintf("asset-%d", rand.N(40)), 1+rand.N(3))
		if err != nil && ctx.Err() == nil {
			// The database may be away for a moment; the demonstration goes on.
			s.log.Warn("a sample transaction failed", "error", err)
		}
		return nil
	})
	stop()
	<-done
	return err
}

// forget deletes the sample subscriptions of an earlier run: its receiver had other
// secrets and perhaps another port.
func (s *stage) forget(ctx context.Context) error {
	for {
		subs, err := s.store.Subscriptions(ctx, s.tenant, 0, 100)
		if err != nil || len(subs) == 0 {
			return err
		}
		for _, sub := range subs {
			if err := s.store.DeleteSubscription(ctx, sub.ID); err != nil {
				return err
			}
		}
	}
}
