package delivery

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// Rate limits the requests to an endpoint: at most Requests in any time of length Per, of
// all dispatchers together. They are evenly spaced, so none follows another closer than
// Per / Requests. The zero value is no limit.
type Rate struct {
	// Requests is 1 to 10,000.
	Requests int
	// Per is whole seconds, up to 24 hours.
	Per time.Duration
}

const (
	maxRateRequests = 10_000
	maxRatePer      = 24 * time.Hour
)

// String returns the rate as ParseRate reads it, and "" for none.
func (r Rate) String() string {
	if r == (Rate{}) {
		return ""
	}
	per := r.Per.String()
	switch r.Per {
	case time.Second:
		per = "s"
	case time.Minute:
		per = "m"
	case time.Hour:
		per = "h"
	}
	return strconv.Itoa(r.Requests) + "/" + per
}

// ParseRate reads a rate such as 100/s, 10/m, 5000/h or 10/30s; "" is none. What is no
// rate is an *InvalidError.
func ParseRate(text string) (Rate, error) {
	if text == "" {
		return Rate{}, nil
	}
	requests, per, found := strings.Cut(text, "/")
	n, err := strconv.Atoi(requests)
	if per != "" && (per[0] < '0' || per[0] > '9') {
		per = "1" + per
	}
	d, perErr := time.ParseDuration(per)
	r := Rate{n, d}
	if !found || err != nil || perErr != nil || r == (Rate{}) {
		return Rate{}, &InvalidError{Index: -1, Field: "RateLimit", Problem: fmt.Sprintf("is %q; use requests per time, such as 100/s, 10/m or 10/30s", text)}
	}
	if problem := r.problem(); problem != "" {
		return Rate{}, &InvalidError{Index: -1, Field: "RateLimit", Problem: problem}
	}
	return r, nil
}

// problem says what is wrong with a rate, "" if nothing.
func (r Rate) problem() string {
	switch {
	case r == (Rate{}):
	case r.Requests < 1 || r.Requests > maxRateRequests:
		return fmt.Sprintf("has %d requests; use 1 to %d", r.Requests, maxRateRequests)
	case r.Per < time.Second || r.Per > maxRatePer || r.Per%time.Second != 0:
		return fmt.Sprintf("is per %v; use whole seconds, up to %v", r.Per, maxRatePer)
	}
	return ""
}

// interval is the least time between two requests, rounded up to what the database tells
// apart.
func (r Rate) interval() time.Duration {
	n := int64(r.Requests)
	return time.Duration((r.Per.Microseconds()+n-1)/n) * time.Microsecond
}

// writeRate sets or drops the rate limit of a subscription.
func (s *Store) writeRate(ctx context.Context, db dbgen.DBTX, id int64, r Rate) error {
	if r == (Rate{}) {
		return queries.SubscriptionDropRate(ctx, db, id)
	}
	return queries.SubscriptionSetRate(ctx, db, &dbgen.SubscriptionSetRateParams{
		ID: id, Requests: int32(r.Requests), PerS: int32(r.Per / time.Second), IntervalUs: r.interval().Microseconds(), Now: s.now(),
	})
}

// rateOf is the rate limit that a row holds.
func rateOf(row *dbgen.PostlaneSubscriptions) Rate {
	if row.RateLimit == nil || row.RatePerS == nil {
		return Rate{}
	}
	return Rate{int(*row.RateLimit), time.Duration(*row.RatePerS) * time.Second}
}
