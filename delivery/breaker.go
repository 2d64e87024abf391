package delivery

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/dbgen"
)

const (
	// breakAfter is how many requests of a subscription in a row must find no endpoint
	// for its breaker to open. Fewer would let a flaky endpoint's bad luck stop it.
	breakAfter = 10
	// probeFirst is the pause before the first probe; it doubles up to probeMost, which
	// is how long an endpoint that came back may wait to be noticed.
	probeFirst = 5 * time.Second
	probeMost  = time.Minute
	// maxAsked bounds for how long an endpoint may have all its deliveries wait.
	maxAsked = 10 * time.Minute
)

// Breaker tells of an endpoint that is not there: its last requests all met no connection,
// no answer in time, or 429, 502, 503 or 504, and one request at a time is sent to find out
// whether it is back. What waits for that is charged no attempt. A success closes it.
type Breaker struct {
	// Since is when it opened.
	Since time.Time
	// NextProbe is when the next request may be sent; while one is open, when another
	// may if nothing comes of it.
	NextProbe time.Time
	// Failures is how many requests failed in a row.
	Failures int
}

// unavailable reports whether an attempt found no endpoint, or one that asks for less. An
// answer of 500 is not that: it may be about the event.
func unavailable(r *sender.Result) bool {
	switch r.Outcome {
	case sender.Timeout, sender.ConnectTimeout, sender.TLSTimeout, sender.DNSNotFound,
		sender.ConnectionRefused, sender.ConnectionReset, sender.ConnectionClosed, sender.Unreachable:
		return true
	case sender.HTTPStatus:
		switch r.Status {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
	}
	return false
}

// strikes are results that found no endpoint, column by column.
type strikes struct {
	claimArrays
	asked []int64
}

func (s *strikes) add(c *Claim, from int64, r *Result) {
	s.claimArrays.add(c, from)
	s.asked = append(s.asked, min(max(r.Asked, 0), maxAsked).Milliseconds())
}

// queue adds the statements that count them. They come after deliveries are written and
// before leases end: a claim that holds a breaker may wait for a lease that is being deleted.
func (s *strikes) queue(q *pgx.Batch, now *time.Time, opened func(pgx.Rows) error) {
	q.Queue(dbgen.BreakerBegin, s.subscriptions)
	q.Queue(dbgen.BreakerStrike, s.subscriptions, s.assets, s.froms, s.fences, s.asked, now,
		int32(breakAfter), probeFirst.Milliseconds(), probeMost.Milliseconds()).Query(opened)
}

// withBreakers reads the open breakers of subscriptions. Few have one, and those say so.
func (s *Store) withBreakers(ctx context.Context, rows []*dbgen.PostlaneSubscriptions) ([]*Subscription, error) {
	list := make([]*Subscription, len(rows))
	var failing []int64
	for i, r := range rows {
		list[i] = newSubscription(r)
		if r.Failing {
			failing = append(failing, r.ID)
		}
	}
	if len(failing) == 0 {
		return list, nil
	}
	open, err := queries.BreakerList(ctx, s.pool, failing)
	if err != nil {
		return nil, err
	}
	of := make(map[SubscriptionID]*Breaker, len(open))
	for _, b := range open {
		of[SubscriptionID(b.SubscriptionID)] = &Breaker{Since: b.OpenSince, NextProbe: b.ProbeAt, Failures: int(b.Failures)}
	}
	for _, sub := range list {
		sub.Breaker = of[sub.ID]
	}
	return list, nil
}

// OpenBreakers returns how many active subscriptions have an open Breaker, up to 10,000,
// and for how long the longest has been open; 0 if none is.
func (s *Store) OpenBreakers(ctx context.Context) (n int64, longest time.Duration, err error) {
	open, err := queries.BreakerCount(ctx, s.pool, s.now())
	if err != nil {
		return 0, 0, fmt.Errorf("delivery: count breakers: %w", err)
	}
	return open.N, time.Duration(open.LongestMs) * time.Millisecond, nil
}

// ActiveSubscriptions returns how many subscriptions are active, up to 10,000: what the
// open Breakers are a part of.
func (s *Store) ActiveSubscriptions(ctx context.Context) (int64, error) {
	n, err := queries.SubscriptionActiveCount(ctx, s.pool)
	if err != nil {
		return 0, fmt.Errorf("delivery: count active subscriptions: %w", err)
	}
	return n, nil
}
