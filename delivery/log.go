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

// Deliveries returns up to max entries of a subscription's log, newest first, before
// the given one (0: from the newest). The last entry's id is where the next page
// begins; ids are unique, so pages neither repeat nor skip. ErrTooBroad where a filter
// leaves so little of a long log that the page cannot be filled in time.
func (s *Store) Deliveries(ctx context.Context, sub SubscriptionID, f Filter, before ID, max int) ([]Delivery, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	return s.page(ctx, dbgen.LogList, sub, f, 0, before, max)
}

// DeliveriesOldest is Deliveries, oldest first, after the given one.
func (s *Store) DeliveriesOldest(ctx context.Context, sub SubscriptionID, f Filter, after ID, max int) ([]Delivery, error) {
	return s.page(ctx, dbgen.LogListOldest, sub, f, after, math.MaxInt64, max)
}

// page runs LogList or LogListOldest, which take the same parameters, for up to limit
// entries between after and before.
func (s *Store) page(ctx context.Context, query string, sub SubscriptionID, f Filter, after, before ID, limit int) ([]Delivery, error) {
	states := f.States
	if len(states) == 0 {
		states = DeliveryStates
	}
	var settled []string
	for _, state := range states {
		if _, err := ParseDeliveryState(string(state)); err != nil {
			return nil, err
		}
		if state != Pending && state != Delivering {
			settled = append(settled, string(state))
		}
	}
	has := func(state DeliveryState) bool { return slices.Contains(states, state) }
	since, until := optional(f.Since), optional(f.Until)
	if since != nil || until != nil {
		var from, to ID
		err := s.bounded(ctx, func(b *pgx.Batch) {
			b.Queue(dbgen.LogBounds, int64(sub), since, until).QueryRow(func(row pgx.Row) error { return row.Scan(&from, &to) })
		})
		if err != nil {
			return nil, fmt.Errorf("delivery: list deliveries of %v: %w", sub, err)
		}
		after, before = max(after, from), min(before, to)
	}
	list := make([]Delivery, 0, min(limit, 1000))
	err := s.bounded(ctx, func(b *pgx.Batch) {
		b.Queue(query, int32(limit), int64(sub), int64(before), int64(after), has(Dead), has(Pending), has(Delivering), f.OfAsset, f.Asset, f.EventType,
			since, until, len(settled) > 0, settled).
			Query(func(rows pgx.Rows) error {
				read, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[dbgen.LogListRow])
				for _, r := range read {
					list = append(list, newDelivery(r))
				}
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("delivery: list deliveries of %v: %w", sub, err)
	}
	return list, nil
}

// Delivery returns one entry of a subscription's log, or ErrNotFound.
func (s *Store) Delivery(ctx context.Context, sub SubscriptionID, id ID) (Delivery, error) {
	if id >= 1 && id < math.MaxInt64 {
		list, err := s.Deliveries(ctx, sub, Filter{}, id+1, 1)
		if err != nil {
			return Delivery{}, err
		}
		if len(list) == 1 && list[0].ID == id {
			return list[0], nil
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
