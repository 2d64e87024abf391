package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/postlane-go/postlane/delivery/sender"
)

// DiscardDeleted and WakeOrphans are what a dispatcher's upkeep calls.
func (s *Store) DiscardDeleted(ctx context.Context, limit int) (int64, error) {
	return s.discardDeleted(ctx, limit)
}

func (s *Store) WakeOrphans(ctx context.Context) (woken int64, err error) {
	const limit = 1000
	var from streamPosition
	for {
		next, n, err := s.wakeOrphans(ctx, from, limit)
		woken += n
		if err != nil || next == (streamPosition{}) {
			return woken, err
		}
		from = next
	}
}

// SecretsOf returns what signs a subscription's requests now, the current secret first.
func (s *Store) SecretsOf(ctx context.Context, id SubscriptionID) ([]string, error) {
	targets, err := newTargets(s).read(ctx, []int64{int64(id)})
	if err != nil {
		return nil, err
	}
	t := targets[id]
	if t == nil {
		return nil, ErrNotFound
	}
	var secrets []string
	for _, secret := range t.secrets {
		secrets = append(secrets, secret.Reveal())
	}
	return secrets, t.err
}

// ReadyFloor is the rank at which claims begin to read a subscription, 0 from its first.
func (s *Store) ReadyFloor(id SubscriptionID) int64 {
	s.floors.mu.Lock()
	defer s.floors.mu.Unlock()
	if i, found := slices.BinarySearch(s.floors.used.Ids, int64(id)); found {
		return s.floors.used.Ready[i]
	}
	return 0
}

// ParkMax is how many deliveries a Park moves at most.
const ParkMax = parkMax

// ParkAfter parks deliveries of the subscriptions after one, as a dispatcher does.
func (s *Store) ParkAfter(ctx context.Context, after SubscriptionID, maxInFlight int) (parked int64, last SubscriptionID, err error) {
	return s.park(ctx, after, maxInFlight, parkWindow)
}

// LookFor sets how long the dispatcher's claims look, before it runs.
func (d *Dispatcher) LookFor(t time.Duration) { d.look = t }

// Unavailable reports whether an attempt counts for its subscription's Breaker.
func Unavailable(r *sender.Result) bool { return unavailable(r) }
