package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// Release gives claims back without charging the attempt: they may be claimed again at
// once, as if they had not been. Claims whose lease is lost are left alone; how many
// were given back is the answer.
func (s *Store) Release(ctx context.Context, claims []*Claim) (released int, err error) {
	results := make([]Result, len(claims))
	for i, c := range claims {
		results[i] = Result{Claim: c, Verdict: Released}
	}
	settlements, err := s.Settle(ctx, results)
	for _, x := range settlements {
		if x.State == SettledReleased {
			released++
		}
	}
	return released, err
}

// Renew moves the end of claims' leases to lease from now, and returns those whose lease
// is lost: the claimant must not act for them any more.
func (s *Store) Renew(ctx context.Context, claims []*Claim, lease time.Duration) (lost []*Claim, err error) {
	if len(claims) == 0 {
		return nil, nil
	}
	var a claimArrays
	for _, c := range claims {
		a.add(c, c.Seq)
	}
	held := make(map[streamKey]bool, len(claims))
	err = s.pipeline(ctx, func(b *pgx.Batch) {
		b.Queue(dbgen.LeaseRenew, a.subscriptions, a.assets, a.fences, s.now(), lease.Milliseconds()).
			Query(func(rows pgx.Rows) error {
				var k streamKey
				for rows.Next() {
					if err := rows.Scan(&k.subscription, &k.asset, &k.fence); err != nil {
						return err
					}
					held[k] = true
				}
				return rows.Err()
			})
	})
	if err != nil {
		return nil, fmt.Errorf("delivery: renew: %w", err)
	}
	for _, c := range claims {
		if !held[c.stream()] {
			lost = append(lost, c)
		}
	}
	return lost, nil
}

// Reclaimed is a delivery that was taken back from a claimant whose lease ran out.
type Reclaimed struct {
	Subscription SubscriptionID
	Seq, Fence   int64
	Attempt      int
	Claimant     string
	// State is pending, or, after its last attempt, dead or held with the reason
	// "stalled", or discarded.
	State Settled
}

// Reclaim takes back up to max deliveries whose lease ran out. Their attempts stay
// charged, since the requests may have arrived, and are recorded with the outcome
// "stalled".
func (s *Store) Reclaim(ctx context.Context, max int) ([]Reclaimed, error) {
	var reclaimed []Reclaimed
	err := s.transaction(ctx, func(tx pgx.Tx) error {
		if err := queries.PlanSettings(ctx, tx); err != nil {
			return err
		}
		rows, err := queries.LeaseReclaim(ctx, tx, &dbgen.LeaseReclaimParams{Now: s.now(), Max: int32(max)})
		if err != nil || len(rows) == 0 {
			return err
		}
		var a claimArrays
		for _, r := range rows {
			c := Claim{Subscription: SubscriptionID(r.SubscriptionID), Seq: r.Seq, Fence: r.Fence}
			if r.Asset != nil {
				c.Asset = *r.Asset
			}
			a.add(&c, c.Seq)
			reclaimed = append(reclaimed, Reclaimed{
				Subscription: c.Subscription, Seq: r.Seq, Fence: r.Fence, Attempt: int(r.Attempt), Claimant: r.Claimant, State: Settled(r.State),
			})
		}
		drop := &dbgen.LeaseDropParams{SubscriptionIds: a.subscriptions, Assets: a.assets, Seqs: a.seqs, Fences: a.fences}
		if _, err := queries.LeaseDrop(ctx, tx, drop); err != nil {
			return err
		}
		_, err = queries.StreamWake(ctx, tx, &dbgen.StreamWakeParams{SubscriptionIds: a.subscriptions, Assets: a.assets})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("delivery: reclaim: %w", err)
	}
	return reclaimed, nil
}
