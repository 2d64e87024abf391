// Package retry computes when a failed delivery is tried again. It is pure:
// no clock, no state, no randomness of its own.
package retry

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// MaxDelay is the longest delay of any kind: the longest entry that
	// NewSchedule takes, and as far as Retry-After can put an attempt off. A
	// receiver that answers "come back in a year" would otherwise park its
	// stream for as long.
	MaxDelay = 24 * time.Hour

	// MinDelay is the shortest entry, and the shortest delay: anything less
	// is a hot loop.
	MinDelay = 100 * time.Millisecond

	// JitterPercent is how far a delay may differ from its entry, either way.
	// Deliveries that failed together would otherwise come back together.
	JitterPercent = 10
)

// DefaultDelays are the waits after the first, second, ... failed attempt when
// nothing else is set: 8 attempts over about 28 hours.
var DefaultDelays = []time.Duration{
	5 * time.Second,
	5 * time.Minute,
	30 * time.Minute,
	2 * time.Hour,
	5 * time.Hour,
	10 * time.Hour,
	10 * time.Hour,
}

// Jitter is a source of randomness: it returns a number in [0, n) for n > 0.
// math/rand/v2.Int64N is one, safe for concurrent use.
type Jitter func(n int64) int64

// Schedule says how long to wait after each failed attempt, and how many
// attempts there are. The zero value is DefaultDelays with one attempt more
// than it has entries. A Schedule is immutable and safe for concurrent use.
type Schedule struct {
	delays      []time.Duration // nil: DefaultDelays
	maxAttempts int             // 0: len(delays)+1
}

// NewSchedule returns a schedule with the given waits; after the last one it
// repeats. No waits means DefaultDelays. maxAttempts counts all attempts, the
// first included; 0 means one more than there are waits. It fails for a wait
// outside MinDelay to MaxDelay and for a negative maxAttempts.
func NewSchedule(maxAttempts int, delays ...time.Duration) (Schedule, error) {
	var errs []error
	for i, d := range delays {
		if d < MinDelay || d > MaxDelay {
			errs = append(errs, fmt.Errorf("retry: delay %d is %v; choose one from %v to %v", i+1, d, MinDelay, MaxDelay))
		}
	}
	if maxAttempts < 0 {
		errs = append(errs, fmt.Errorf("retry: %d attempts; choose at least 1, or 0 for the default", maxAttempts))
	}
	if err := errors.Join(errs...); err != nil {
		return Schedule{}, err
	}
	return Schedule{delays: slices.Clone(delays), maxAttempts: maxAttempts}, nil
}

func (s Schedule) table() []time.Duration {
	if len(s.delays) == 0 {
		return DefaultDelays
	}
	return s.delays
}

// MaxAttempts returns after how many failed attempts a delivery is dead.
func (s Schedule) MaxAttempts() int {
	if s.maxAttempts > 0 {
		return s.maxAttempts
	}
	return len(s.table()) + 1
}

// Delay returns how long to wait after the attempt with the given number (from
// 1) failed: the schedule's entry, varied by JitterPercent, or retryAfter if
// that is longer. retryAfter is what the receiver asked for, 0 or less for
// nothing; it is never varied downwards, and counts up to MaxDelay. A nil
// jitter varies nothing.
//
// The result is at least MinDelay and at most MaxDelay plus JitterPercent, for
// every input.
func (s Schedule) Delay(attempt int, jitter Jitter, retryAfter time.Duration) time.Duration {
	delays := s.table()
	delay := delays[min(max(attempt, 1), len(delays))-1]
	if jitter != nil {
		spread := delay * JitterPercent / 100
		delay += time.Duration(jitter(int64(2*spread+1))) - spread
	}
	return max(MinDelay, delay, min(retryAfter, MaxDelay))
}
