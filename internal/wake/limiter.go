package wake

import (
	"time"

	"golang.org/x/time/rate"
)

// Limiter decides which of a process's transactions carry a notification.
//
// A commit that notifies holds a lock of the whole database cluster, so that
// such commits take turns. A few hundred a second do not notice. Thousands would
// be slowed to the speed of one disk flush after another, to wake a consumer
// that is awake. What goes without is found by the next one's wake-up, or by
// polling.
//
// A nil Limiter allows everything. It may be used from any goroutine.
type Limiter struct {
	bucket *rate.Limiter
}

// NewLimiter returns a Limiter that allows perSecond notifications a second,
// and burst at once after a pause.
func NewLimiter(perSecond float64, burst int) *Limiter {
	return &Limiter{rate.NewLimiter(rate.Limit(perSecond), burst)}
}

// Allow reports whether the transaction at hand should notify.
func (l *Limiter) Allow() bool { return l.allowAt(time.Now()) }

func (l *Limiter) allowAt(now time.Time) bool { return l == nil || l.bucket.AllowN(now, 1) }

// process is shared by all that a process enqueues and stages, since the lock
// is one too.
var process = NewLimiter(200, 20)

// Allow reports whether the transaction at hand should notify, as judged by
// the process's own Limiter: 200 a second, 20 at once.
func Allow() bool { return process.Allow() }
