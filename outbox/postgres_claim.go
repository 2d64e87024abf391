package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/shorttx"
)

const (
	// claimWindow is how many queues one statement walks along, so that it stays
	// short when many of them have nothing to give.
	claimWindow = 1000
	// claimBytes is how much payload one claim takes, so that its answer fits
	// into memory whatever is staged.
	claimBytes = 32 << 20
	// hideFrom is from how many waiting queues on a claim that met them has them
	// taken out of its way, and hideMax how many messages at once.
	hideFrom = 32
	hideMax  = 2000
	// tendEvery is how often claims look at leases and waits that may be over.
	tendEvery = 200 * time.Millisecond
	// tendMax is how many of each they see to at once.
	tendMax = 1000
)

// Claim takes messages: see Store.
func (s *Postgres) Claim(ctx context.Context, limit int) ([]Claim, error) {
	if limit < 1 {
		return nil, errors.New("outbox: claim at least 1 message")
	}
	if err := s.tend(ctx); err != nil {
		return nil, fmt.Errorf("outbox: claim: %w", err)
	}
	first := s.position()
	from, wrapped := first, 0
	for {
		walk, err := s.claim(ctx, limit, from)
		if err != nil {
			return nil, fmt.Errorf("outbox: claim: %w", err)
		}
		if len(walk.held) >= hideFrom {
			if err := s.hide(ctx, walk.held); err != nil {
				return nil, fmt.Errorf("outbox: claim: %w", err)
			}
		}
		if walk.end <= from {
			wrapped++
		}
		from = walk.end
		// Once round is enough: a queue that looked free may have nothing to give
		// because somebody has locked its first message, or was faster.
		if len(walk.claims) > 0 || walk.complete || wrapped == 1 && from >= first || wrapped > 1 {
			s.moveOn(walk)
			return walk.claims, nil
		}
	}
}

// walk is what one statement found on its way from queue to queue.
type walk struct {
	claims   []Claim
	held     []string
	end      string
	complete bool // it has been everywhere
}

func (s *Postgres) position() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.after
}

// moveOn has the next claim begin behind the queue that gave last.
func (s *Postgres) moveOn(w *walk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = w.end
	if n := len(w.claims); n > 0 {
		s.after = w.claims[n-1].Queue
	}
}

// claim runs one statement, which begins behind the queue from.
func (s *Postgres) claim(ctx context.Context, limit int, from string) (*walk, error) {
	w := &walk{}
	err := s.pipeline(ctx, func(b *pgx.Batch) {
		b.Queue(dbgen.MessageClaim, from, int32(limit), int32(claimWindow), int64(claimBytes), s.now(),
			s.Lease().Milliseconds(), s.config.Claimant).
			Query(func(rows pgx.Rows) error { return w.read(rows) })
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (w *walk) read(rows pgx.Rows) error {
	for rows.Next() {
		var c Claim
		var headers string
		err := rows.Scan(&w.end, &w.complete, &w.held, &c.Seq, &c.Fence, &c.ClaimedAt, &c.Attempt, &c.ID, &c.Queue, &c.Topic, &c.Tenant,
			&c.IdempotencyKey, &c.Traceparent, &c.EnqueuedBy, &headers, &c.Payload, &c.MaxAttempts, &c.StagedAt)
		if err != nil {
			return err
		}
		if c.Seq == 0 {
			continue
		}
		c.Attempt++
		c.Headers, c.Damage = decodeHeaders(headers)
		w.claims = append(w.claims, c)
	}
	return rows.Err()
}

// hide takes what is ready in queues that wait out of the way of claims.
func (s *Postgres) hide(ctx context.Context, queues []string) error {
	return s.pipeline(ctx, func(b *pgx.Batch) {
		b.Queue(dbgen.MessageHide, queues, int32(hideMax))
	})
}

// tend takes back what other claimants have lost, lets queues go on whose wait is
// over, and scheduled messages join theirs. It looks at most every tendEvery, since
// it finds nothing most of the time.
func (s *Postgres) tend(ctx context.Context) error {
	s.mu.Lock()
	due := s.config.Now != nil || time.Since(s.tended) >= tendEvery
	s.mu.Unlock()
	if !due {
		return nil
	}
	for more := true; more; {
		var reclaimed, resumed int
		var joined int64
		now := s.now()
		err := s.pipeline(ctx, func(b *pgx.Batch) {
			b.Queue(dbgen.QueueReclaim, now, int32(tendMax)).Query(func(rows pgx.Rows) error {
				for rows.Next() {
					reclaimed++
				}
				return rows.Err()
			})
			b.Queue(dbgen.MessageDue, now, int32(tendMax)).QueryRow(func(row pgx.Row) error { return row.Scan(&joined) })
			b.Queue(dbgen.QueueDueCount, now).QueryRow(func(row pgx.Row) error { return row.Scan(&resumed) })
		})
		if err == nil && resumed > 0 {
			resumed, err = s.resume(ctx)
		}
		if err != nil {
			return err
		}
		more = reclaimed == tendMax || resumed == tendMax || joined == tendMax
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tended = time.Now()
	return nil
}

// resume lets queues go on whose wait is over.
func (s *Postgres) resume(ctx context.Context) (resumed int, err error) {
	err = shorttx.Run(ctx, s.pool, func(tx pgx.Tx) error {
		if err := queries.PlanSettings(ctx, tx); err != nil {
			return err
		}
		queues, err := queries.QueueDue(ctx, tx, &dbgen.QueueDueParams{Now: s.now(), Max: tendMax})
		if err != nil || len(queues) == 0 {
			return err
		}
		ended, err := queries.QueueResume(ctx, tx, queues)
		resumed = len(ended)
		return err
	})
	return resumed, err
}
