package torture

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errNoStandby: commits do not wait for a standby.
var errNoStandby = errors.New("the standby does not follow")

// patience is for how long something is tried that faults may keep from succeeding.
const patience = 40 * time.Second

// persist calls f until it succeeds, or for patience.
func persist(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		timer := time.NewTimer(100 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("tried for %v: %w", patience, err)
		}
	}
}
