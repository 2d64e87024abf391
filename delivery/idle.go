package delivery

import (
	"context"
	"fmt"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// Idle reports whether nothing is in flight, of any dispatcher, and nothing could be
// claimed at this moment. What waits for its time, or for more than a second for its place
// in a rate limit, or belongs to a subscription that is paused or disabled, or stands
// behind a dead letter that holds its stream, does not count.
// It is for tests, and for stopping when the work is done.
func (s *Store) Idle(ctx context.Context) (bool, error) {
	idle, err := queries.DeliveryIdle(ctx, s.pool, &dbgen.DeliveryIdleParams{Now: s.now(), WaitMs: (startWithin / 2).Milliseconds()})
	if err != nil {
		return false, fmt.Errorf("delivery: idle: %w", err)
	}
	return idle, nil
}
