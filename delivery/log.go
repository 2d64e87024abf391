package delivery

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// DeliveryState is that of a delivery.
type DeliveryState string

const (
	Pending    DeliveryState = "pending"    // waits for its turn or its time
	Delivering DeliveryState = "delivering" // in flight
	Delivered  DeliveryState = "delivered"
	Dead       DeliveryState = "dead"
	Discarded  DeliveryState = "discarded"
)

// DeliveryStates are all states, in the order of a delivery's life.
var DeliveryStates = []DeliveryState{Pending, Delivering, Delivered, Dead, Discarded}

// ParseDeliveryState reads a state's name; the error names those there are.
func ParseDeliveryState(text string) (DeliveryState, error) {
	if s := DeliveryState(text); slices.Contains(DeliveryStates, s) {
		return s, nil
	}
	names := make([]string, len(DeliveryStates))
	for i, s := range DeliveryStates {
		names[i] = string(s)
	}
	return "", &InvalidError{Index: -1, Field: "state", Problem: fmt.Sprintf("%q is none of %s", text, strings.Join(names, ", "))}
}

// Filter chooses deliveries of a subscription's log. The zero value chooses all.
type Filter struct {
	// States: any of these. Default: every state.
	States []DeliveryState
	// EventType: exactly this one. Default: any.
	EventType string
	// Asset: exactly this one, where OfAsset is set; "" are the deliveries
	// without one.
	Asset   string
	OfAsset bool
	// Since and Until bound when the event was written, by the database's clock:
	// from Since on, before Until. An event of a transaction that had been open
	// for more than a day may be missing where they are set. Default: unbounded.
	Since, Until time.Time
	// Within is after what time a page is returned as far as it has got, where the
	// filter leaves few of many entries. Default: 300 ms.
	Within time.Duration
}

// Delivery is an entry of the log. It never holds the payload.
type Delivery struct {
	ID        ID
	State     DeliveryState
	EventID   string
	EventType string
	Asset     string
	// Attempts counts those that were made, or are being made, since the delivery
	// was enqueued or last revived.
	Attempts int
	Created  time.Time
	// Due is when the next attempt may start, where that is later than now;
	// Settled is when it left its stream. Both are nil where that is not so.
	Due, Settled *time.Time
	// Held says that it is dead and holds its stream.
	Held bool
	// Reason is why it is dead, held or discarded.
	Reason string
}

// Delivery returns one entry of a subscription's log, or ErrNotFound.
func (s *Store) Delivery(ctx context.Context, sub SubscriptionID, id ID) (Delivery, error) {
	if id >= 1 && id < math.MaxInt64 {
		page, err := s.Deliveries(ctx, sub, Filter{}, id+1, 1)
		if err != nil {
			return Delivery{}, err
		}
		if len(page.Deliveries) == 1 && page.Deliveries[0].ID == id {
			return page.Deliveries[0], nil
		}
	}
	return Delivery{}, fmt.Errorf("%w: no delivery %v of %v", ErrNotFound, id, sub)
}

// Attempt is a request that was made, and what came of it.
type Attempt struct {
	Number  int
	Fence   int64
	Started time.Time
	// Outcome is a short stable word: those of package sender, or "stalled" where
	// the worker's lease ran out and nobody knows.
	Outcome string
	// Duration is nil where the attempt stalled; Status where no answer came.
	Duration *time.Duration
	Status   *int
	// Answer is the beginning of the answer's body as it came: any bytes. Show it
	// as text and never as HTML.
	Answer    []byte
	AnswerCut bool
	Headers   []byte
	// Error may name addresses of this network: for operators only.
	Error string
	// DNS, Connect, TLS and FirstByte are 0 where that part did not happen.
	DNS, Connect, TLS, FirstByte time.Duration
	Claimant                     string
}

// Attempts returns the attempts of a delivery, first to last, those before a revival
// included. None for an id that the subscription does not have.
func (s *Store) Attempts(ctx context.Context, sub SubscriptionID, id ID) ([]Attempt, error) {
	rows, err := queries.LogAttempts(ctx, s.pool, &dbgen.LogAttemptsParams{SubscriptionID: int64(sub), Seq: int64(id)})
	if err != nil {
		return nil, fmt.Errorf("delivery: attempts of %v: %w", id, err)
	}
	us := func(n *int32) time.Duration {
		if n == nil {
			return 0
		}
		return time.Duration(*n) * time.Microsecond
	}
	attempts := make([]Attempt, len(rows))
	for i, r := range rows {
		a := Attempt{
			Number: int(r.Number), Fence: r.Fence, Started: r.StartedAt, Outcome: r.Outcome, Answer: r.Answer, AnswerCut: r.AnswerCut,
			Headers: r.Headers, DNS: us(r.DnsUs), Connect: us(r.ConnectUs), TLS: us(r.TlsUs), FirstByte: us(r.FirstByteUs), Claimant: r.Claimant,
		}
		if r.DurationMs != nil {
			d := time.Duration(*r.DurationMs) * time.Millisecond
			a.Duration = &d
		}
		if r.Status != nil {
			n := int(*r.Status)
			a.Status = &n
		}
		if r.Error != nil {
			a.Error = *r.Error
		}
		attempts[i] = a
	}
	return attempts, nil
}

// Counts returns how many deliveries a subscription (0: all together) has in each state.
// It counts every row.
func (s *Store) Counts(ctx context.Context, sub SubscriptionID) (map[DeliveryState]int64, error) {
	rows, err := queries.LogCounts(ctx, s.pool, int64(sub))
	if err != nil {
		return nil, fmt.Errorf("delivery: count deliveries: %w", err)
	}
	counts := make(map[DeliveryState]int64, len(DeliveryStates))
	for _, state := range DeliveryStates {
		counts[state] = 0
	}
	for _, r := range rows {
		counts[DeliveryState(r.State)] = r.Deliveries
	}
	return counts, nil
}

// StoredEvent is an event without its payload.
type StoredEvent struct {
	ID, Tenant, Type, Asset, ContentType string
	Seq                                  int64
	PayloadSize                          int
	Created                              time.Time
}

// Event returns an event of a tenant, or ErrNotFound.
func (s *Store) Event(ctx context.Context, tenant, id string) (*StoredEvent, error) {
	r, err := queries.EventShow(ctx, s.pool, &dbgen.EventShowParams{Tenant: tenant, ID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: no event %q of tenant %q", ErrNotFound, id, tenant)
	}
	if err != nil {
		return nil, fmt.Errorf("delivery: event %q: %w", id, err)
	}
	e := &StoredEvent{ID: r.ID, Tenant: r.Tenant, Type: r.Type, ContentType: r.ContentType, Seq: r.Seq, PayloadSize: int(r.PayloadSize), Created: r.CreatedAt}
	if r.Asset != nil {
		e.Asset = *r.Asset
	}
	return e, nil
}

// EventPayload returns the content type and the payload of an event of a tenant, or
// ErrNotFound.
func (s *Store) EventPayload(ctx context.Context, tenant, id string) (contentType string, payload []byte, err error) {
	r, err := queries.EventContent(ctx, s.pool, &dbgen.EventContentParams{Tenant: tenant, ID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil, fmt.Errorf("%w: no event %q of tenant %q", ErrNotFound, id, tenant)
	}
	if err != nil {
		return "", nil, fmt.Errorf("delivery: payload of event %q: %w", id, err)
	}
	return r.ContentType, r.Payload, nil
}

func newDelivery(r *dbgen.LogListRow) Delivery {
	d := Delivery{
		ID: ID(r.Seq), State: DeliveryState(r.State), EventID: r.EventID, EventType: r.EventType, Attempts: int(r.Attempts),
		Created: r.CreatedAt, Due: r.DueAt, Settled: r.SettledAt, Held: r.HeldAt != nil,
	}
	if r.Asset != nil {
		d.Asset = *r.Asset
	}
	if r.Reason != nil {
		d.Reason = *r.Reason
	}
	return d
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
