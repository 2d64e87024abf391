package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// Pending counts what is not published. It reads the whole backlog, some 50 ms a
// million messages.
func (s *Postgres) Pending(ctx context.Context) (Backlog, error) {
	r, err := queries.OutboxBacklog(ctx, s.pool, s.now())
	if err != nil {
		return Backlog{}, fmt.Errorf("outbox: pending: %w", err)
	}
	return Backlog{
		Pending: r.Pending, OldestAge: time.Duration(r.OldestMs) * time.Millisecond,
		Scheduled: r.Scheduled, Parked: r.Parked, Waiting: r.Waiting,
	}, nil
}

// State is where a message is on its way.
type State string

// The states of a message.
const (
	StatePending   State = "pending"   // in its queue, or being published
	StateScheduled State = "scheduled" // waits for its RunAt
	StateParked    State = "parked"    // given up, until an operator acts
	StatePublished State = "published"
)

// Listed is a message as operators see it: without its payload.
type Listed struct {
	Seq         int64     `json:"seq"`
	ID          string    `json:"id"`
	State       State     `json:"state"`
	Queue       string    `json:"queue"`
	Topic       string    `json:"topic"`
	Tenant      string    `json:"tenant,omitempty"`
	PayloadSize int       `json:"payload_size"`
	Attempts    int       `json:"attempts"`
	MaxAttempts int       `json:"max_attempts"`
	Error       string    `json:"error,omitempty"`
	StagedAt    time.Time `json:"staged_at"`
	EnqueuedBy  string    `json:"enqueued_by,omitempty"`
	// At is the time that the state is about: when the next attempt is, of a
	// pending one that failed; when it is due, was parked or was published.
	At time.Time `json:"at,omitzero"`
	// Claimant publishes it now, or has published it.
	Claimant string `json:"claimant,omitempty"`
}

// ListRequest says what to list.
type ListRequest struct {
	// State is which messages. Required.
	State State
	// Queue limits the list to a queue. Default: all.
	Queue string
	// After is the Seq after which the list goes on. Default: the beginning.
	After int64
	// Max is the most messages to list. Default: 100.
	Max int
}

// List returns messages in one state, in the order in which they were staged.
func (s *Postgres) List(ctx context.Context, r ListRequest) ([]Listed, error) {
	switch r.State {
	case StatePending, StateScheduled, StateParked, StatePublished:
	default:
		return nil, fmt.Errorf("outbox: list: no state is called %q; use pending, scheduled, parked or published", r.State)
	}
	if r.Max <= 0 {
		r.Max = 100
	}
	rows, err := queries.MessageList(ctx, s.pool, &dbgen.MessageListParams{State: string(r.State), After: r.After, Queue: r.Queue, Max: int32(min(r.Max, 100_000))})
	if err != nil {
		return nil, fmt.Errorf("outbox: list: %w", err)
	}
	list := make([]Listed, len(rows))
	for i, m := range rows {
		list[i] = Listed{
			Seq: m.Seq, ID: m.ID, State: r.State, Queue: m.Queue, Topic: m.Topic, Tenant: m.Tenant, PayloadSize: int(m.PayloadSize),
			Attempts: int(m.Attempts), MaxAttempts: int(m.MaxAttempts), Error: m.Error, StagedAt: m.StagedAt.UTC(),
			EnqueuedBy: m.EnqueuedBy, Claimant: m.Claimant,
		}
		if m.At.Unix() != 0 {
			list[i].At = m.At.UTC()
		}
	}
	return list, nil
}

// Retry has messages tried again at once: parked ones return to their place in
// their queue with no attempts charged, and of those whose queue waits for their
// next attempt the wait is over. It returns the ids of those that were one or the
// other. It needs no relay to run and may run beside one.
func (s *Postgres) Retry(ctx context.Context, ids ...string) (retried []string, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := queries.MessageRetry(ctx, s.pool, &dbgen.MessageRetryParams{Ids: ids, Now: s.now()})
	if err != nil {
		return nil, fmt.Errorf("outbox: retry: %w", err)
	}
	for _, r := range rows {
		retried = append(retried, r.ID)
	}
	return retried, nil
}

// RetryParked has up to max parked messages of a queue ("" for all) tried again,
// oldest first, and returns their ids.
func (s *Postgres) RetryParked(ctx context.Context, queue string, max int) (retried []string, err error) {
	ids, err := queries.MessageParkedIDs(ctx, s.pool, &dbgen.MessageParkedIDsParams{Queue: queue, Max: int32(max)})
	if err != nil {
		return nil, fmt.Errorf("outbox: retry: %w", err)
	}
	return s.Retry(ctx, ids...)
}

// Prune forgets up to max messages that were published longer ago than age, and
// says how many: call it until it returns less than max. Their ids and idempotency
// keys are free again.
func (s *Postgres) Prune(ctx context.Context, age time.Duration, max int) (pruned int, err error) {
	n, err := queries.MessagePrune(ctx, s.pool, &dbgen.MessagePruneParams{Now: s.now(), AgeMs: age.Milliseconds(), Max: int32(max)})
	if err != nil {
		return 0, fmt.Errorf("outbox: prune: %w", err)
	}
	return int(n), nil
}
