package api

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxLimits bounds how many keys' rates are remembered; they are all forgotten then,
// which lets each make one more burst.
const maxLimits = 10_000

// limits is the rate of each key, in this process.
type limits struct {
	rate  rate.Limit
	burst int
	mu    sync.Mutex
	of    map[string]*rate.Limiter
}

func newLimits(perSecond float64, burst int) *limits {
	return &limits{rate: rate.Limit(perSecond), burst: burst, of: map[string]*rate.Limiter{}}
}

// take counts a request of a key. It returns for how long to wait if there were too many.
func (l *limits) take(key string) time.Duration {
	l.mu.Lock()
	limiter := l.of[key]
	if limiter == nil {
		if len(l.of) >= maxLimits {
			clear(l.of)
		}
		limiter = rate.NewLimiter(l.rate, l.burst)
		l.of[key] = limiter
	}
	l.mu.Unlock()
	reservation := limiter.Reserve()
	wait := reservation.Delay()
	if wait > 0 {
		reservation.Cancel()
	}
	return wait
}
