package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/lockwait"
	"github.com/postlane-go/postlane/internal/traceparent"
	"github.com/postlane-go/postlane/internal/wake"
)

// Stage writes messages in tx, whatever database it belongs to: see the function
// Stage.
func (s *Postgres) Stage(ctx context.Context, tx pgx.Tx, messages ...Message) ([]Staged, error) {
	return stage(ctx, tx, s.now(), messages)
}

// Stage writes messages in the caller's transaction, in one round trip however many
// they are: see Store. It needs no store, since staging is all that most code does.
//
// It waits for nobody but another open transaction that stages the same id or
// idempotency key, and for that at most half a second (ErrBusy), which is less than
// PostgreSQL takes to look for a deadlock. After ErrInvalid and ErrBusy the call has
// staged nothing and the transaction is as it was before: the caller may go on and
// commit. Any other error comes from the database or the connection and has ended
// the transaction.
func Stage(ctx context.Context, tx pgx.Tx, messages ...Message) ([]Staged, error) {
	return stage(ctx, tx, nil, messages)
}

func stage(ctx context.Context, tx pgx.Tx, now *time.Time, messages []Message) ([]Staged, error) {
	if tx == nil {
		return nil, ErrNoTx
	}
	if len(messages) == 0 {
		return nil, nil
	}
	c, err := newStageCall(traceparent.Of(ctx), now, messages)
	if err != nil {
		return nil, err
	}
	seqs, err := c.store(ctx, tx)
	if err != nil {
		return nil, err
	}
	staged := make([]Staged, len(messages))
	for i, id := range c.params.Ids {
		seq, fresh := seqs[id]
		staged[i] = Staged{ID: id, Seq: seq, Duplicate: !fresh}
		delete(seqs, id) // given twice in this call, it is new once
	}
	return staged, nil
}

// stageCall is one call of Stage.
type stageCall struct {
	params dbgen.MessageStageParams
	// contested says that an id or idempotency key was given by the caller, so that
	// another transaction may hold it.
	contested bool
}

func newStageCall(parent string, now *time.Time, messages []Message) (*stageCall, error) {
	n := len(messages)
	c := &stageCall{params: dbgen.MessageStageParams{
		Wake: wake.Allow(), Now: now,
		Ids: make([]string, n), Queues: make([]string, n), Topics: make([]string, n), Tenants: make([]string, n),
		IdempotencyKeys: make([]string, n), Traceparents: make([]string, n), EnqueuedBys: make([]string, n),
		Headers: make([]string, n), Payloads: make([][]byte, n), MaxAttempts: make([]int32, n), RunAtsUs: make([]int64, n),
	}}
	p := &c.params
	for i, m := range messages {
		c.contested = c.contested || m.ID != "" || m.IdempotencyKey != ""
		m, err := m.normalize(i, parent)
		if err != nil {
			return nil, err
		}
		p.Ids[i], p.Queues[i], p.Topics[i], p.Tenants[i] = m.ID, m.Queue, m.Topic, m.Tenant
		p.IdempotencyKeys[i], p.Traceparents[i], p.EnqueuedBys[i] = m.IdempotencyKey, m.Traceparent, m.EnqueuedBy
		p.Headers[i] = encodeHeaders(m.Headers)
		if p.Payloads[i] = m.Payload; m.Payload == nil {
			p.Payloads[i] = []byte{} // nil would be NULL
		}
		p.MaxAttempts[i] = int32(m.MaxAttempts)
		if !m.RunAt.IsZero() {
			p.RunAtsUs[i] = max(m.RunAt.UnixMicro(), 1)
		}
	}
	return c, nil
}

// store writes the messages and returns the seq of those that were new, by id.
func (c *stageCall) store(ctx context.Context, tx pgx.Tx) (map[string]int64, error) {
	p := &c.params
	seqs := make(map[string]int64, len(p.Ids))
	args := []any{
		p.Wake, p.Ids, p.Queues, p.Topics, p.Tenants, p.IdempotencyKeys, p.Traceparents, p.EnqueuedBys,
		p.Headers, p.Payloads, p.MaxAttempts, p.RunAtsUs, p.Now,
	}
	err := lockwait.Query(ctx, tx, c.contested, dbgen.MessageStage, args, func(rows pgx.Rows) error {
		for rows.Next() {
			var id, woken string
			var seq int64
			if err := rows.Scan(&id, &seq, &woken); err != nil {
				return err
			}
			seqs[id] = seq
		}
		return rows.Err()
	})
	switch {
	case errors.Is(err, lockwait.ErrBusy):
		return nil, ErrBusy
	case err != nil:
		return nil, fmt.Errorf("outbox: stage: %w", err)
	}
	return seqs, nil
}
