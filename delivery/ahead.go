package delivery

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// aheadBudget is how many deliveries are read at once to be sent behind claimed ones: it
// bounds memory, and what is read in vain when a run ends early.
const aheadBudget = 4000

// Ahead returns what follows each of the claims in its stream, in order: up to
// ClaimRequest.Ahead deliveries, fewer of many claims (4,000 in all), none behind a second
// attempt, under a rate limit, of an endpoint that fails, or behind a delivery that could not be sent in its turn, and none of a subscription that
// has changed since the claim: what is enqueued after a change is sent as it says. The lease is the stream's, so
// once an attempt has succeeded the claimant may go on with the next, one after another,
// never two at a time, and settles them in that order (Result.Next). Those it does not get
// to are pending as before.
func (s *Store) Ahead(ctx context.Context, claims []Claim, ahead int) ([][]Claim, error) {
	runs := make([][]Claim, len(claims))
	var of []int // what the statement's arrays are of
	var a claimArrays
	for i := range claims {
		if claims[i].ahead > 0 {
			of = append(of, i)
			a.add(&claims[i], claims[i].Seq)
		}
	}
	if ahead < 1 || len(of) == 0 {
		return runs, nil
	}
	most := min(ahead, max(aheadBudget/len(of), 1))
	err := s.pipeline(ctx, func(b *pgx.Batch) {
		b.Queue(dbgen.DeliveryAhead, a.subscriptions, a.assets, a.seqs, int32(most)).
			Query(func(rows pgx.Rows) error {
				ended := make([]bool, len(claims))
				var number int
				var fit bool
				var revision int64
				for rows.Next() {
					var c Claim
					err := rows.Scan(&number, &c.Seq, &c.EventID, &fit, &revision, &c.EventType, &c.ContentType, &c.Traceparent, &c.PayloadSize, &c.Payload)
					if err != nil {
						return err
					}
					i := of[number-1]
					before := &claims[i]
					if n := len(runs[i]); n > 0 {
						before = &runs[i][n-1]
					}
					if ended[i] = ended[i] || !fit || revision != before.Revision || c.Seq < before.Seq; ended[i] {
						continue
					}
					c.Subscription, c.Revision, c.Tenant, c.Asset = before.Subscription, before.Revision, before.Tenant, before.Asset
					c.Fence, c.Prev, c.Attempt = before.Fence, before.Seq, 1
					runs[i] = append(runs[i], c)
				}
				return rows.Err()
			})
	})
	if err != nil {
		return nil, fmt.Errorf("delivery: read ahead: %w", err)
	}
	return runs, nil
}
