package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

const (
	// claimOverscan is how many ready deliveries of a subscription a claim looks
	// at beyond its limit in flight: those that are in flight stand before the
	// ones that it may take.
	claimOverscan = 64
	// maxWait bounds ClaimRequest.Wait; DeliveryClaim knows it.
	maxWait = time.Minute
	// parkWindow is how many ready deliveries of a subscription Park looks at,
	// and parkMax how many it moves at once.
	parkWindow = 2000
	parkMax    = 2000
)

// ClaimRequest says what to claim.
type ClaimRequest struct {
	// Claimant names who claims, for people who look at the leases. It decides
	// nothing: the fence does. Required.
	Claimant string
	// Max is the most deliveries to return, each of another stream. Required.
	Max int
	// Ahead is how many deliveries behind a first attempt may be sent under its
	// lease; see Store.Ahead. Default: 0.
	Ahead int
	// MaxInFlight is the most deliveries of one subscription in flight at a time,
	// of all claimants together; a subscription's own lower limit counts too. Two
	// claims at the same instant do not see each other, and may together exceed
	// it by what they take. Required.
	MaxInFlight int
	// Lease is how long the deliveries are the claimant's. Required.
	Lease time.Duration
	// Wait is how long the claimant is ready to wait before it sends a delivery, so
	// that one claim may take several of a subscription with a rate limit; see
	// Claim.Wait. More than a minute counts as one. Default: 0.
	Wait time.Duration
	// Look is how long to go on looking through subscriptions: a claim that has not found
	// Max by then returns what it has, and Park moves what stood in its way.
	// Default: to the end.
	Look time.Duration
	// After is where to begin: subscriptions take turns, and this is the one
	// that had the last.
	After SubscriptionID
}

// Claim is a delivery in flight: the claimant may send it until its lease ends, and
// has to settle, release or renew it.
type Claim struct {
	Subscription SubscriptionID
	// Revision is the subscription's as the claim saw it.
	Revision int64
	Tenant   string

	// Seq is the delivery's place in the order of events, and Prev that of the
	// delivery before it in its stream, 0 if none is known.
	Seq, Prev int64
	// Fence identifies the claim.
	Fence int64
	// Attempt is the number of this attempt, from 1.
	Attempt int

	// Wait is how long after the claim the request may start, where the subscription
	// has a rate limit: each has its place in time, which is used up whether or not
	// it is sent.
	Wait time.Duration
	// ahead is how many behind it may be sent under its lease.
	ahead int32

	EventID, EventType, Asset, ContentType string
	// Traceparent is the trace context that the event comes from, "" if none.
	Traceparent string

	// Payload is nil where it is larger than 64 KiB, or than 4 KiB in an answer of
	// Ahead; Store.Payload reads it then.
	Payload     []byte
	PayloadSize int
}

// streamKey names a stream under a claim.
type streamKey struct {
	subscription int64
	asset        string
	fence        int64
}

func (c *Claim) stream() streamKey { return streamKey{int64(c.Subscription), c.Asset, c.Fence} }

// ID returns the delivery's id.
func (c *Claim) ID() ID { return ID(c.Seq) }

// Claim takes deliveries that may be sent: at most one of each stream, the first, and
// none of a stream that has one in flight; fairly between subscriptions. It returns
// fewer than asked for, or none, where there are no more; see Park and Ripen for what
// may become ready then. The answer is in the order of the subscriptions' turns, so the
// last one's is where the next claim begins (ClaimRequest.After).
func (s *Store) Claim(ctx context.Context, r ClaimRequest) ([]Claim, error) {
	if r.Claimant == "" || r.Max < 1 || r.MaxInFlight < 1 || r.Lease < time.Millisecond {
		return nil, errors.New("delivery: a claim needs a claimant, a maximum, a limit in flight and a lease")
	}
	look := int64(math.MaxInt32) // weeks
	if r.Look > 0 {
		look = max(r.Look.Milliseconds(), 1)
	}
	var claims []Claim
	began := s.time()
	known, whole := s.floors.begin(began)
	err := s.pipeline(ctx, func(b *pgx.Batch) {
		s.floors.look(b, began, whole)
		b.Queue(dbgen.ClaimBegin)
		b.Queue(dbgen.DeliveryClaim, int64(r.After), known.Ids, look, s.now(), r.Lease.Milliseconds(), min(r.Wait, maxWait).Milliseconds(), r.Claimant,
			known.Ready, known.Fences, int32(r.MaxInFlight), int32(r.MaxInFlight+claimOverscan), int32(r.Max), int32(r.Ahead)).
			Query(func(rows pgx.Rows) error {
				var asset *string
				var wait, interval int64
				var paced map[SubscriptionID]int64 // how many were seen of each
				for rows.Next() {
					var c Claim
					err := rows.Scan(&c.Subscription, &c.Seq, &c.Fence, &c.Attempt, &c.ahead, &c.Tenant, &c.EventID, &asset,
						&c.Revision, &c.Prev, &c.EventType, &c.ContentType, &c.Traceparent, &c.PayloadSize, &c.Payload, &wait, &interval)
					if err != nil {
						return err
					}
					if asset != nil {
						c.Asset = *asset
					}
					if interval > 0 {
						if paced == nil {
							paced = map[SubscriptionID]int64{}
						}
						c.Wait = time.Duration(wait+paced[c.Subscription]*interval) * time.Microsecond
						paced[c.Subscription]++
					}
					claims = append(claims, c)
				}
				return rows.Err()
			})
	})
	if err != nil {
		return nil, fmt.Errorf("delivery: claim: %w", err)
	}
	s.floors.note(claims)
	if whole {
		s.floors.cost(s.time().Sub(began))
	}
	turn := func(c Claim) int { // the round in which the subscription was reached
		if c.Subscription > r.After {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(claims, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(turn(a), turn(b)), cmp.Compare(a.Subscription, b.Subscription))
	})
	return claims, nil
}

// Park moves ready deliveries that stand behind others of their stream out of the
// claims' way and returns how many it moved. After a claim that returned fewer than it
// was asked for, and a Park that moved some, there may be more to claim. maxInFlight is
// the claim's: where a subscription has no slot free by it, nothing stands in a claim's
// way, and nothing is moved.
func (s *Store) Park(ctx context.Context, maxInFlight int) (parked int64, err error) {
	parked, _, err = s.park(ctx, 0, maxInFlight, parkWindow)
	return parked, err
}

// park looks at window ready deliveries of each subscription after one, and returns the
// last of which it moved any.
func (s *Store) park(ctx context.Context, after SubscriptionID, maxInFlight, window int) (parked int64, last SubscriptionID, err error) {
	known := s.floors.known()
	err = s.pipeline(ctx, func(b *pgx.Batch) {
		b.Queue(dbgen.DeliveryPark, int64(after), known.Ids, known.Ready, known.Fences, int32(maxInFlight), s.now(), int32(window), int32(parkMax)).
			QueryRow(func(row pgx.Row) error { return row.Scan(&parked, &last) })
	})
	if err != nil {
		return 0, 0, fmt.Errorf("delivery: park: %w", err)
	}
	return parked, last, nil
}

// Ripen makes up to max deliveries ready whose time has come, and returns how many,
// and how long it is until the next one's time (negative: none waits).
func (s *Store) Ripen(ctx context.Context, max int) (ripened int64, next time.Duration, err error) {
	var ms int64
	err = s.pipeline(ctx, func(b *pgx.Batch) {
		b.Queue(dbgen.DeliveryRipen, s.now(), int32(max)).
			QueryRow(func(row pgx.Row) error { return row.Scan(&ripened, &ms) })
	})
	if err != nil {
		return 0, 0, fmt.Errorf("delivery: ripen: %w", err)
	}
	return ripened, time.Duration(ms) * time.Millisecond, nil
}

// waiting reports whether a claim may find something, and how long it is until the next
// delivery's time comes (negative: none waits).
func (s *Store) waiting(ctx context.Context) (ready bool, next time.Duration, err error) {
	w, err := queries.DeliveryWaiting(ctx, s.pool, s.now())
	if err != nil {
		return false, -1, fmt.Errorf("delivery: look for what waits: %w", err)
	}
	due := w.NextMs >= 0
	return w.Ready || due && w.NextMs == 0, time.Duration(w.NextMs) * time.Millisecond, nil
}

// Payload reads the payload of a claim that came without it.
func (s *Store) Payload(ctx context.Context, c *Claim) ([]byte, error) {
	payload, err := queries.EventPayload(ctx, s.pool, &dbgen.EventPayloadParams{Tenant: c.Tenant, ID: c.EventID})
	if err != nil {
		return nil, fmt.Errorf("delivery: payload of %v: %w", c.ID(), err)
	}
	return payload, nil
}
