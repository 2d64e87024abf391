package outbox

import (
	"errors"
	"fmt"
	"time"
)

const (
	// DefaultLease is how long a claim is its claimant's where nothing else is said.
	DefaultLease = 30 * time.Second
	// MaxLease is the longest lease: what a relay that was killed holds stays
	// untouched for as long.
	MaxLease = 24 * time.Hour
)

// ErrLease is matched by the error of a store that is made with a lease that
// cannot be.
var ErrLease = errors.New("outbox: lease")

// NormalizeLease is the one place that says what a lease may be; every store
// made by this package asks it. nil is DefaultLease. Anything else must be a whole,
// positive number of milliseconds, which is what the database counts in, and no
// longer than MaxLease.
func NormalizeLease(lease *time.Duration) (time.Duration, error) {
	if lease == nil {
		return DefaultLease, nil
	}
	switch d := *lease; {
	case d <= 0:
		return 0, fmt.Errorf("%w of %v: with no time at all every claim is lost before its first message; give at least a few seconds", ErrLease, d)
	case d%time.Millisecond != 0:
		return 0, fmt.Errorf("%w of %v: give whole milliseconds", ErrLease, d)
	case d > MaxLease:
		return 0, fmt.Errorf("%w of %v: messages of a killed relay would wait as long; give at most %v", ErrLease, d, MaxLease)
	default:
		return d, nil
	}
}
