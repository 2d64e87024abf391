package delivery

import (
	"context"
	"fmt"
	"time"
)

// startWithin is how long after its claim the request of a delivery may start. A
// dispatcher that gets to it later releases it instead, so whoever changed the
// subscription and waited this long knows that no request starts by what was before.
const startWithin = 2 * time.Second

// quiesce returns when no request of a subscription starts any more that was claimed
// before this call. It waits for the claims that are under way, which may not have
// seen the change, and then for each claim to be settled or old enough to have
// started. With an endpoint that answers this takes milliseconds, and at most
// startWithin otherwise.
func (s *Store) quiesce(ctx context.Context, id SubscriptionID) error {
	if err := s.awaitClaims(ctx); err != nil {
		return fmt.Errorf("delivery: the change of %v is made, but a request may still start: %w", id, err)
	}
	// From here on every claim has seen the change. A subscription that goes on
	// always has young ones, and those are not waited for.
	for began := time.Now(); time.Since(began) < startWithin; {
		age, err := queries.SubscriptionYoungClaims(ctx, s.pool, int64(id))
		if err != nil {
			return fmt.Errorf("delivery: the change of %v is made, but a request may still start: %w", id, err)
		}
		if age < 0 || age >= startWithin.Milliseconds() {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// awaitClaims waits until the claims that run now have ended. It takes no lock that
// they would have to wait for.
func (s *Store) awaitClaims(ctx context.Context) error {
	running, err := queries.ClaimRunning(ctx, s.pool)
	if err != nil {
		return err
	}
	before := make(map[string]bool, len(running))
	for _, claim := range running {
		before[claim] = true
	}
	for len(before) > 0 {
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return err
		}
		if running, err = queries.ClaimRunning(ctx, s.pool); err != nil {
			return err
		}
		still := make(map[string]bool, len(running))
		for _, claim := range running {
			if before[claim] {
				still[claim] = true
			}
		}
		before = still
	}
	return nil
}

// pause waits for d, or for ctx to end.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
