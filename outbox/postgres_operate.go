package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// MaxCounted is up to how many Postgres.Pending counts of each kind, so that asking
// costs the same however large the backlog is.
const MaxCounted = 100_000

// Pending counts what is not published, up to MaxCounted of each kind. OldestAge is
// exact.
func (s *Postgres) Pending(ctx context.Context) (Backlog, error) {
	r, err := queries.OutboxBacklog(ctx, s.pool, &dbgen.OutboxBacklogParams{Max: MaxCounted, Now: s.now()})
	if err != nil {
		return Backlog{}, fmt.Errorf("outbox: pending: %w", err)
	}
	return Backlog{
		Pending: r.Pending, OldestAge: time.Duration(r.OldestMs) * time.Millisecond,
		Scheduled: r.Scheduled, Parked: r.Parked, Waiting: r.Waiting,
	}, nil
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
