package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postlane-go/postlane/delivery"
)

const (
	// smallBacklog is what a large one is compared with.
	smallBacklog = 1000
	// flatRounds is how often the two are measured in turns; the medians count. Of a
	// backlog below flatTrial less often: that is a trial, for its ratio says little.
	flatRounds, flatTrialRounds, flatTrial = 15, 5, 100_000
	// flatClaimed is how many deliveries a round claims, after flatSettleIn: together
	// less than half of the small backlog, all of which could be claimed in each shape.
	flatClaimed, flatSettleIn = 400, 50
	// A dispatcher's, with its defaults.
	flatBatch, flatPerSubscription, flatLease = 200, 64, 30 * time.Second
)

// flatShapes are the backlogs that claimFlat looks at.
var flatShapes = []shape{
	// Every delivery a stream of its own.
	{name: "uniform", subscriptions: 100, asset: "'asset-' || i"},
	// Streams ten deep, their first ones in front.
	{name: "deep", subscriptions: 100, asset: "'asset-' || (i / s) % greatest(n / s / 10, 1)"},
	// One stream holds half, mixed among the others.
	{name: "hot", subscriptions: 100, owner: "CASE WHEN i % 2 = 1 THEN 0 ELSE (i / 2) % s END", asset: "CASE WHEN i % 2 = 1 THEN 'hot' ELSE 'asset-' || i END"},
	// The stream without an asset holds half, in front of the others.
	{name: "null-asset", subscriptions: 100, owner: "CASE WHEN i < n / 2 THEN 0 ELSE i % s END", asset: "CASE WHEN i < n / 2 THEN NULL ELSE 'asset-' || i END"},
	// As deep, after the first of each stream has failed: its time has come.
	{
		name: "backoff", subscriptions: 100, asset: "'asset-' || (i / s) % greatest(n / s / 10, 1)",
		due: "CASE WHEN i / s < greatest(n / s / 10, 1) THEN now() - i % 3600 * interval '1 second' END",
	},
	// Paused subscriptions hold half.
	{name: "paused", subscriptions: 100, paused: 10_000, owner: "CASE WHEN i % 2 = 1 THEN s + (i / 2) % 10000 ELSE (i / 2) % s END", asset: "'asset-' || i"},
	{name: "many-subs", subscriptions: 20_000, asset: "'asset-' || i"},
}

// claimFlat measures how the time per claimed delivery depends on the backlog. Of each
// shape there are a large and a small backlog, on databases of their own, just loaded and
// never analyzed: autovacuum is off. They take turns. A round is what a dispatcher does:
// claims, tidying where a claim was short, and settling, which is not timed. The small
// backlog is loaded anew for each round, the large one is worked on.
func claimFlat(ctx context.Context, r *run) (map[string]any, error) {
	n := r.N
	if n == 0 && r.Full {
		n = 10_000_000
	}
	n = cmp.Or(n, 1_000_000)
	if n < 20*smallBacklog {
		return nil, fmt.Errorf("-n is %d; use %d or more", n, 20*smallBacklog)
	}
	rounds := flatRounds
	if n < flatTrial {
		rounds = flatTrialRounds
	}
	large, err := r.newClaimed(ctx, n)
	if err != nil {
		return nil, err
	}
	small, err := r.newClaimed(ctx, smallBacklog)
	if err != nil {
		return nil, err
	}
	var worst float64
	shapes, details := map[string]float64{}, map[string]any{}
	for _, s := range flatShapes {
		ratio, detail, err := compareClaims(ctx, large, small, s, rounds)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		shapes[s.name], details[s.name] = ratio, detail
		worst = max(worst, ratio)
		r.logf("%s: %.3f %v", s.name, ratio, detail)
	}
	return map[string]any{
		"worst_ratio": worst, "shapes": shapes, "details": details, "n": n, "small_n": smallBacklog, "rounds": rounds,
		"claimed_per_round": flatClaimed, "batch": flatBatch, "per_subscription": flatPerSubscription, "autovacuum": "off", "payload_bytes": len(body),
	}, nil
}

// compareClaims returns the ratio of a shape, over so many rounds.
func compareClaims(ctx context.Context, large, small *claimed, s shape, rounds int) (float64, map[string]any, error) {
	began := time.Now()
	if err := large.load(ctx, s); err != nil {
		return 0, nil, err
	}
	loaded := time.Since(began)
	settledIn, err := large.settleIn(ctx)
	if err != nil {
		return 0, nil, err
	}
	var each, smallEach []float64
	for range rounds {
		if err := small.load(ctx, s); err != nil {
			return 0, nil, err
		}
		if _, err := small.settleIn(ctx); err != nil {
			return 0, nil, err
		}
		// In no order, so that neither is always the first.
		for c, list := range map[*claimed]*[]float64{large: &each, small: &smallEach} {
			took, err := c.work(ctx, flatClaimed)
			if err != nil {
				return 0, nil, err
			}
			*list = append(*list, float64(took.Nanoseconds())/flatClaimed)
		}
	}
	if err := errors.Join(large.check(ctx), small.check(ctx)); err != nil {
		return 0, nil, err
	}
	us := func(list []float64) float64 { return float64(round(median(list)/100)) / 10 }
	return ratio(median(each), median(smallEach)), map[string]any{
		"us_per_claimed": us(each), "small_us_per_claimed": us(smallEach), "load_s": float64(round(loaded.Seconds()*10)) / 10,
		"settle_in_ms": round(settledIn.Seconds() * 1000),
	}, nil
}

// claimed is a backlog and the one who claims from it.
type claimed struct {
	*database

	n     int
	after delivery.SubscriptionID
	// subscriptions are those of the shape, and done what has been settled since it
	// was loaded.
	subscriptions []int64
	of            string
	done          int
}

// newClaimed makes a database with n events. The one who claims uses one connection, so
// that what a connection has prepared is the same for both sides.
func (r *run) newClaimed(ctx context.Context, n int) (*claimed, error) {
	d, err := r.newDatabase(ctx, 1)
	if err != nil {
		return nil, err
	}
	for _, table := range []string{"events", "deliveries", "leases", "settled", "attempts", "subscriptions", "subscription_patterns"} {
		if _, err := d.pool.Exec(ctx, fmt.Sprintf("ALTER TABLE postlane.%s SET (autovacuum_enabled = off)", table)); err != nil {
			return nil, err
		}
	}
	return &claimed{database: d, n: n}, d.addEvents(ctx, n)
}

// load replaces the backlog.
func (c *claimed) load(ctx context.Context, s shape) error {
	_, err := c.pool.Exec(ctx, "TRUNCATE postlane.deliveries, postlane.leases, postlane.settled, postlane.attempts")
	if err != nil {
		return err
	}
	if c.of != s.name {
		if _, err := c.pool.Exec(ctx, "TRUNCATE postlane.subscriptions, postlane.subscription_secrets, postlane.subscription_patterns"); err != nil {
			return err
		}
		active, err := c.addSubscriptions(ctx, s.subscriptions, delivery.Active)
		if err != nil {
			return err
		}
		paused, err := c.addSubscriptions(ctx, s.paused, delivery.Paused)
		if err != nil {
			return err
		}
		c.subscriptions, c.of = slices.Concat(active, paused), s.name
	}
	c.done, c.after = 0, 0
	// What becomes ready has a rank above all that was: claims count on it.
	if err := c.takeSeqs(ctx, c.n); err != nil {
		return err
	}
	return c.addDeliveries(ctx, c.n, c.subscriptions, s)
}

// settleIn brings a backlog into the state that is measured, the same for both sizes, and
// returns how long that took: what stands blocked in front of all else is moved out of the
// way, once and for all, and the first claims are made.
func (c *claimed) settleIn(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	for tidied := int64(1); tidied > 0; {
		if tidied, err = c.tidy(ctx); err != nil {
			return 0, err
		}
	}
	for got := 0; got < flatSettleIn; {
		claimed, _, err := c.pass(ctx, flatSettleIn-got)
		if err != nil {
			return 0, err
		}
		got += claimed
	}
	return time.Since(began), nil
}

// work claims n deliveries and settles them, and returns how long the claims took with the
// tidying between them.
func (c *claimed) work(ctx context.Context, n int) (took time.Duration, err error) {
	for got := 0; got < n; {
		claimed, t, err := c.pass(ctx, min(n-got, flatBatch))
		if err != nil {
			return 0, err
		}
		got += claimed
		took += t
	}
	return took, nil
}

// pass is one of a dispatcher: a claim, and tidying if it was short. Settling is not timed.
func (c *claimed) pass(ctx context.Context, want int) (got int, took time.Duration, err error) {
	began := time.Now()
	claims, err := c.store.Claim(ctx, delivery.ClaimRequest{
		Claimant: "bench", Max: want, MaxInFlight: flatPerSubscription, Lease: flatLease, After: c.after,
	})
	if err != nil {
		return 0, 0, err
	}
	if len(claims) < want {
		tidied, err := c.tidy(ctx)
		if err != nil {
			return 0, 0, err
		}
		if len(claims) == 0 && tidied == 0 {
			return 0, 0, fmt.Errorf("nothing can be claimed after %d of %d", c.done, c.n)
		}
	}
	took = time.Since(began)
	return len(claims), took, c.settle(ctx, claims)
}

func (c *claimed) tidy(ctx context.Context) (int64, error) {
	ripened, _, err := c.store.Ripen(ctx, 1000)
	if err != nil {
		return 0, err
	}
	parked, err := c.store.Park(ctx, flatPerSubscription)
	return ripened + parked, err
}

// settle settles claims, after a look at whether they could be in flight together.
func (c *claimed) settle(ctx context.Context, claims []delivery.Claim) error {
	type stream struct {
		subscription delivery.SubscriptionID
		asset        string
	}
	streams := map[stream]bool{}
	results := make([]delivery.Result, len(claims))
	for i := range claims {
		streams[stream{claims[i].Subscription, claims[i].Asset}] = true
		results[i] = delivery.Result{
			Claim: &claims[i], Verdict: delivery.Succeeded,
			Attempt: delivery.AttemptEvidence{Started: time.Now(), Outcome: "delivered", Status: 204, Answered: true},
		}
		c.after = claims[i].Subscription
	}
	if len(streams) != len(claims) {
		return fmt.Errorf("%d deliveries of %d streams were claimed together", len(claims), len(streams))
	}
	settlements, err := c.store.Settle(ctx, results)
	if err != nil {
		return err
	}
	for _, s := range settlements {
		if s.State != delivery.SettledDelivered {
			return fmt.Errorf("a claimed delivery was settled as %s", s.State)
		}
	}
	c.done += len(claims)
	return nil
}

// check looks at what the rounds have left: what was settled is out of the backlog, the
// rest is in it, and nothing was analyzed.
func (c *claimed) check(ctx context.Context) error {
	var waiting, delivered, analyzed int
	err := c.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM postlane.deliveries), (SELECT count(*) FROM postlane.settled WHERE state = 'delivered'),
		(SELECT count(*) FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'postlane'::regnamespace))`).
		Scan(&waiting, &delivered, &analyzed)
	if err != nil {
		return err
	}
	if delivered != c.done || waiting != c.n-c.done {
		return fmt.Errorf("of %d deliveries %d were settled, but %d are and %d wait", c.n, c.done, delivered, waiting)
	}
	if analyzed > 0 {
		return fmt.Errorf("the tables were analyzed meanwhile")
	}
	return nil
}
