package postlanetest

import (
	"sync"
	"time"
)

// Clock is a time that stands still until the test moves it. Its Now fits the Now of
// delivery.StoreConfig and outbox.StoreConfig, which then decides leases, due times and
// settling. What is written when an event is enqueued remains the database's time, so
// begin with the present. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a Clock at a time. The zero time stands for the present.
func NewClock(at time.Time) *Clock {
	if at.IsZero() {
		at = time.Now()
	}
	return &Clock{now: at}
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock on.
func (c *Clock) Advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(by)
}
