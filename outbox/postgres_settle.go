package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// maxError is how much of an error is kept, in bytes.
const maxError = 2000

// claimKey names a claimed message in what statements answer.
type claimKey struct {
	queue      string
	seq, fence int64
}

// claimArrays are claims as the statements take them.
type claimArrays struct {
	queues       []string
	seqs, fences []int64
}

func arraysOf(claims []Claim) (a claimArrays) {
	for _, c := range claims {
		a.queues = append(a.queues, c.Queue)
		a.seqs = append(a.seqs, c.Seq)
		a.fences = append(a.fences, c.Fence)
	}
	return a
}

// held collects the keys that a statement answers with.
type held map[claimKey]bool

func (h held) read(rows pgx.Rows) error {
	var k claimKey
	for rows.Next() {
		if err := rows.Scan(&k.queue, &k.seq, &k.fence); err != nil {
			return err
		}
		h[k] = true
	}
	return rows.Err()
}

// check returns a LeaseLostError of the claims that are not among those held.
func (h held) check(claims []Claim) error {
	var lost []Claim
	for _, c := range claims {
		if !h[claimKey{c.Queue, c.Seq, c.Fence}] {
			lost = append(lost, c)
		}
	}
	if lost != nil {
		return &LeaseLostError{lost}
	}
	return nil
}

// MarkPublished settles messages that were published: see Store.
func (s *Postgres) MarkPublished(ctx context.Context, claims ...Claim) error {
	return s.write(ctx, "mark published", claims, func(b *pgx.Batch, a claimArrays, h held) {
		b.Queue(dbgen.MessagePublish, a.queues, a.seqs, a.fences, s.now()).Query(h.read)
		b.Queue(dbgen.QueueSettle, a.queues, a.seqs, a.fences)
	})
}

// Release gives messages back: see Store.
func (s *Postgres) Release(ctx context.Context, claims ...Claim) error {
	return s.write(ctx, "release", claims, func(b *pgx.Batch, a claimArrays, h held) {
		b.Queue(dbgen.QueueSettle, a.queues, a.seqs, a.fences).Query(h.read)
	})
}

// Fail charges attempts: see Store.
func (s *Postgres) Fail(ctx context.Context, failures ...Failure) error {
	claims := make([]Claim, len(failures))
	delays := make([]int64, len(failures))
	parks := make([]bool, len(failures))
	texts := make([]string, len(failures))
	for i, f := range failures {
		claims[i], parks[i], texts[i] = f.Claim, f.Park, errorText(f.Error)
		delays[i] = delayMillis(f.Delay)
	}
	return s.write(ctx, "fail", claims, func(b *pgx.Batch, a claimArrays, h held) {
		b.Queue(dbgen.MessageFail, a.queues, a.seqs, a.fences, delays, parks, texts, s.now()).Query(h.read)
		b.Queue(dbgen.QueueSettle, a.queues, a.seqs, a.fences)
	})
}

// write runs the statements for claims, and says which were not held.
func (s *Postgres) write(ctx context.Context, what string, claims []Claim, queue func(*pgx.Batch, claimArrays, held)) error {
	if len(claims) == 0 {
		return nil
	}
	h := make(held, len(claims))
	if err := s.pipeline(ctx, func(b *pgx.Batch) { queue(b, arraysOf(claims), h) }); err != nil {
		return fmt.Errorf("outbox: %s: %w", what, err)
	}
	return h.check(claims)
}

// Renew makes leases last: see Store.
func (s *Postgres) Renew(ctx context.Context, claims ...Claim) error {
	if len(claims) == 0 {
		return nil
	}
	type leaseKey struct {
		queue string
		fence int64
	}
	leases := map[leaseKey][]int64{}
	var queues []string
	var fences []int64
	for _, c := range claims {
		k := leaseKey{c.Queue, c.Fence}
		if _, ok := leases[k]; !ok {
			leases[k] = nil
			queues, fences = append(queues, c.Queue), append(fences, c.Fence)
		}
	}
	err := s.pipeline(ctx, func(b *pgx.Batch) {
		b.Queue(dbgen.QueueRenew, queues, fences, s.now(), s.Lease().Milliseconds()).Query(func(rows pgx.Rows) error {
			var k leaseKey
			for rows.Next() {
				var seqs []int64
				if err := rows.Scan(&k.queue, &k.fence, &seqs); err != nil {
					return err
				}
				leases[k] = seqs
			}
			return rows.Err()
		})
	})
	if err != nil {
		return fmt.Errorf("outbox: renew: %w", err)
	}
	h := make(held, len(claims))
	for _, c := range claims {
		if slices.Contains(leases[leaseKey{c.Queue, c.Fence}], c.Seq) {
			h[claimKey{c.Queue, c.Seq, c.Fence}] = true
		}
	}
	return h.check(claims)
}

// errorText returns an error's text as every store keeps it.
func errorText(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "…"
	}
	return text
}

// delayMillis returns a delay in milliseconds, rounded up, of at most a year.
func delayMillis(d time.Duration) int64 {
	const most = 365 * 24 * time.Hour
	return int64((min(max(d, 0), most) + time.Millisecond - 1) / time.Millisecond)
}
