package sender

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxRetryAfter is the most that ParseRetryAfter returns. How much of it is
// honoured is the caller's choice.
const MaxRetryAfter = 7 * 24 * time.Hour

// ParseRetryAfter reads Retry-After header values (RFC 9110, section 10.2.3)
// and returns the first that is one: a number of seconds, digits only, or an
// HTTP date, taken relative to now. Dates in the past are no request to wait,
// and are passed over like what cannot be read. The duration is from 0 to
// MaxRetryAfter.
func ParseRetryAfter(values []string, now time.Time) (time.Duration, bool) {
	for _, value := range values {
		if after, ok := parseRetryAfter(value, now); ok {
			return after, true
		}
	}
	return 0, false
}

func parseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	if value == "" {
		return 0, false
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, false
		}
		// Cut before multiplying: 292 years of seconds overflow a Duration
		// into the past.
		return time.Duration(min(seconds, int64(MaxRetryAfter/time.Second))) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil || !at.After(now) {
		return 0, false
	}
	return min(at.Sub(now), MaxRetryAfter), true
}
