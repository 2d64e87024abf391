package outbox

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/postlane-go/postlane/internal/dbgen"
)

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
	// Cursor is the ListRequest.After with which the list goes on behind it.
	Cursor string `json:"-"`
}

// ListRequest says what to list.
type ListRequest struct {
	// State is which messages. Required.
	State State
	// Queue limits the list to a queue. Default: all.
	Queue string
	// After is the Cursor of the message after which the list goes on, made with
	// the same State and Queue. Default: the beginning.
	After string
	// Max is the most messages to list. Default: 100.
	Max int
}

// List returns messages in one state: pending ones in the order in which they began to
// wait, or in that of their queue where one is named; scheduled ones as they are due;
// others as they were staged. A page costs the same wherever it is in the list, except
// that of one queue among scheduled, parked or published messages: it reads what lies
// between them. An After that is no cursor is ErrCursor.
func (s *Postgres) List(ctx context.Context, r ListRequest) ([]Listed, error) {
	switch r.State {
	case StatePending, StateScheduled, StateParked, StatePublished:
	default:
		return nil, fmt.Errorf("outbox: list: no state is called %q; use pending, scheduled, parked or published", r.State)
	}
	if r.Max <= 0 {
		r.Max = 100
	}
	at, seq, err := parseCursor(r.After)
	if err != nil {
		return nil, fmt.Errorf("outbox: list: %w", err)
	}
	rows, err := queries.MessageList(ctx, s.pool, &dbgen.MessageListParams{
		State: string(r.State), Queue: r.Queue, AfterAt: at, AfterSeq: seq, Max: int32(min(r.Max, 100_000)),
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: list: %w", err)
	}
	list := make([]Listed, len(rows))
	for i, m := range rows {
		list[i] = Listed{
			Seq: m.Seq, ID: m.ID, State: r.State, Queue: m.Queue, Topic: m.Topic, Tenant: m.Tenant, PayloadSize: int(m.PayloadSize),
			Attempts: int(m.Attempts), MaxAttempts: int(m.MaxAttempts), Error: m.Error, StagedAt: m.StagedAt.UTC(),
			EnqueuedBy: m.EnqueuedBy, Claimant: m.Claimant, Cursor: cursor(m.Rank, m.Seq),
		}
		if m.At.Unix() != 0 {
			list[i].At = m.At.UTC()
		}
	}
	return list, nil
}

// cursor names a place in a list: a time, in microseconds, and a seq.
func cursor(at time.Time, seq int64) string {
	return strconv.FormatInt(at.UnixMicro(), 10) + "." + strconv.FormatInt(seq, 10)
}

func parseCursor(text string) (at time.Time, seq int64, err error) {
	if text == "" {
		return time.UnixMicro(0), 0, nil
	}
	micros, rest, _ := strings.Cut(text, ".")
	us, err := strconv.ParseInt(micros, 10, 64)
	if err == nil {
		seq, err = strconv.ParseInt(rest, 10, 64)
	}
	if at = time.UnixMicro(us); err != nil || us < 0 || at.Year() > 9999 {
		return at, 0, fmt.Errorf("%w: %q", ErrCursor, text)
	}
	return at, seq, nil
}
