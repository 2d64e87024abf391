package delivery_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
)

// Any sequence of calls leaves the database as the model says it should be. The sequence is
// drawn from a seed; a failure prints it with what was done, and
//
//	POSTLANE_SEED=n go test ./delivery -run TestTheStoreIsItsModel
//
// replays it. POSTLANE_STEPS is how long each sequence is.
//
// It was tried against faults that were put into the statements by hand, one at a time.
// Those marked * it finds too, by a few hundred steps:
//
//	fault                                            found by
//	LeaseDrop without the fence                    * TestALostLeaseChangesNothing, TestBC07_AFrozenWorkerTakesNothingBack
//	LeaseRenew without the fence                   * the same
//	DeliverySettleDelivered without the fence      * the same
//	DeliverySettleFailed without the fence         * the same
//	DeliveryPostpone without the fence             * TestALostLeaseChangesNothing
//	DeliveryClaim: no order for the first            TestTheOrderDoesNotHangOnThePlan (an index hides it otherwise)
//	DeliveryClaim: no order of what became ready     TestTheOrderDoesNotHangOnThePlan
//	DeliveryClaim: the last of a stream, not first * TestRevivingResetsTheAttemptsAndTakesItsPlace
//	DeliveryClaim: not only the first              * TestManyClaimantsOfOneBacklog, TestBC09_ALockedHeadIsNotOvertaken
//	DeliveryClaim: no look for a lease             * TestBlockedDeliveriesHideNothing, TestAClaimIsNeverMoreThanAsked
//	DeliveryClaim: e.asset = d.asset               * TestEventsWithoutAnAssetAreOneStream, TestBC03_EventsWithoutAnAsset
//	DeliveryClaim: l.asset = d.asset               * (the unique index of leases stands behind it)
//	DeliveryClaim: paused subscriptions too        * TestBC28_PausingKeepsWhatIsPendingInOrder
//	DeliveryClaim: deleted subscriptions too       * TestBC52_DeletingWithPendingAndInFlight
//	DeliveryClaim: the subscription's own limit    * TestAClaimIsNeverMoreThanAsked
//	DeliveryPark without the lock of the first       TestParkAndSettleLeaveNoOrphan, TestManyClaimantsOfOneBacklog
//	StreamWake: wakes nothing                      * TestBlockedDeliveriesHideNothing
//	StreamWake: wakes what waits or holds          * TestDiscardingWhatStandsInTheWay
//	LeaseReclaim: charges nothing                  * TestReclaimChargesTheAttempt
//	LeaseReclaim: before the lease's end           * TestReclaimChargesTheAttempt
//	DeliverySettleFailed: counts before death      * TestFailuresMoveOnlyOnDeath
//	DeliverySettleFailed: a held death not counted *
//	DeliverySettleFailed: one attempt too many     * TestBC24_AttemptsAreCountedFromOne
//	DeliverySettleFailed: one failure too many     * TestTheThresholdDisables
//	DeliverySettleDelivered: forgives nothing      * TestASuccessForgives
//	DeliveryReviveHeld: keeps the attempts         * TestADeadLetterHoldsItsStream
//	DeliveryReviveDead: at the end of the stream   * TestRevivingResetsTheAttemptsAndTakesItsPlace
//	DeliveryRipen: too early                       * TestPostponingChargesNothing
//	DeliveryDiscardDeleted: what is in flight too  * TestBC52_DeletingWithPendingAndInFlight
//	EventEnqueue: another order                    * TestAnEnqueuedStreamIsDeliveredInTheOrderOfItsTransaction
func TestTheStoreIsItsModel(t *testing.T) {
	t.Parallel()
	steps, runs := 300, 4
	if testing.Short() {
		steps, runs = 120, 2
	}
	if s := os.Getenv("POSTLANE_STEPS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		steps = n
	}
	seeds := make([]uint64, runs)
	for i := range seeds {
		seeds[i] = rand.Uint64N(1_000_000_000)
	}
	if s := os.Getenv("POSTLANE_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			b, c := setupClock(t)
			w := &walk{bundle: b, clock: c, m: newModel(c.now()), r: rand.New(rand.NewPCG(seed, 0)), held: make([][]delivery.Claim, 3)}
			defer func() {
				if t.Failed() {
					t.Logf("replay with POSTLANE_SEED=%d POSTLANE_STEPS=%d; done was:\n%s", seed, steps, strings.Join(w.done, "\n"))
				}
			}()
			w.run(steps)
		})
	}
}

// walk is a random sequence of calls.
type walk struct {
	*bundle
	clock *clock
	m     *model
	r     *rand.Rand
	done  []string
	held  [][]delivery.Claim // of each claimant, as far as it knows
	stale []delivery.Claim   // what claimants forgot, or were told to have lost
	ids   int
}

func (w *walk) note(format string, args ...any) {
	w.done = append(w.done, fmt.Sprintf(format, args...))
}

func (w *walk) fail(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *walk) chance(percent int) bool { return w.r.IntN(100) < percent }

func (w *walk) run(steps int) {
	for _, types := range []string{"*", "thing.*"} {
		w.subscribe(types)
	}
	acts := []struct {
		weight int
		act    func()
	}{
		{20, w.enqueue}, {22, w.claim}, {26, w.settle}, {8, w.sendAhead}, {5, w.renew}, {8, w.advance}, {7, w.reclaim}, {7, w.ripen}, {5, w.park},
		{5, w.revive}, {3, w.discard}, {3, w.release}, {4, w.switchState}, {3, w.change}, {3, w.crash}, {1, w.replace}, {4, w.drain},
	}
	total := 0
	for _, a := range acts {
		total += a.weight
	}
	for range steps {
		n := w.r.IntN(total)
		for _, a := range acts {
			if n -= a.weight; n < 0 {
				a.act()
				break
			}
		}
		w.compare()
	}
	w.drain()
	w.compare()
}

func (w *walk) subscribe(types string) {
	s := &modelSub{types: types, state: delivery.Active, onDead: delivery.Continue, maxAttempts: 1 + w.r.IntN(3), disableAfter: 1 + w.r.IntN(5)}
	if w.chance(30) {
		s.onDead = delivery.Hold
	}
	if w.chance(30) {
		s.maxInFlight = 2
	}
	// By hand, since ids are random otherwise, and a replay has to meet the same.
	s.id = delivery.SubscriptionID(len(w.m.subs) + 1)
	w.exec(`INSERT INTO postlane.subscriptions (id, tenant, url, event_types, on_dead, max_attempts, disable_after, max_in_flight)
		VALUES ($1, $2, 'http://127.0.0.1:8099/', ARRAY[$3], $4, $5, $6, nullif($7::int, 0))`,
		s.id, tenant, types, s.onDead, s.maxAttempts, s.disableAfter, s.maxInFlight)
	w.m.subs[s.id] = s
	w.note("subscribe %d to %s: %+v", int64(s.id), types, *s)
}

// enqueue makes a transaction of several calls, with some of them in savepoints, and ends
// it either way.
func (w *walk) enqueue() {
	tx, err := w.pool.Begin(w.ctx)
	w.fail(err)
	type written struct {
		event delivery.Event
		seq   int64
	}
	var kept []written
	last := int64(0) // the order is that of the calls, and of the events in each
	known := func(id string) int64 {
		if seq := w.m.seqs[id]; seq != 0 {
			return seq
		}
		for _, k := range kept {
			if k.event.ID == id {
				return k.seq
			}
		}
		return 0
	}
	for range 1 + w.r.IntN(3) {
		on := tx
		savepoint := w.chance(20)
		if savepoint {
			on, err = tx.Begin(w.ctx)
			w.fail(err)
		}
		var events []delivery.Event
		for range 1 + w.r.IntN(4) {
			e := event([]string{"", "", "a", "b", "c"}[w.r.IntN(5)])
			if w.chance(25) {
				e.Type = "other"
			}
			e.ID = fmt.Sprint("evt_", w.ids)
			w.ids++
			if w.chance(10) && len(w.m.events) > 0 { // the same again
				all := slices.Sorted(maps.Keys(w.m.events))
				e = w.m.events[all[w.r.IntN(len(all))]]
			}
			events = append(events, e)
		}
		enqueued, err := delivery.Enqueue(w.ctx, on, events...)
		w.fail(err)
		var fresh []written
		for i, e := range enqueued {
			seq := known(e.ID)
			for _, f := range fresh {
				if f.event.ID == e.ID {
					seq = f.seq
				}
			}
			if e.Duplicate != (seq != 0) || seq != 0 && e.Seq != seq {
				w.fail(fmt.Errorf("enqueued %+v, known as %d", e, seq))
			}
			if !e.Duplicate {
				if e.Seq <= last {
					w.fail(fmt.Errorf("enqueued %d after %d", e.Seq, last))
				}
				last = e.Seq
				fresh = append(fresh, written{events[i], e.Seq})
			}
		}
		if savepoint && w.chance(50) {
			w.fail(on.Rollback(w.ctx))
			w.note("  (rolled back to a savepoint: %d events)", len(fresh))
			continue
		}
		if savepoint {
			w.fail(on.Commit(w.ctx))
		}
		kept = append(kept, fresh...)
	}
	if w.chance(20) {
		w.fail(tx.Rollback(w.ctx))
		w.note("enqueue and roll back %d", len(kept))
		return
	}
	w.fail(tx.Commit(w.ctx))
	text := "enqueue"
	for _, k := range kept {
		w.m.enqueued(k.event, k.seq)
		text += fmt.Sprintf(" %d:%q", k.seq, k.event.Asset)
	}
	w.note("%s", text)
}

func (w *walk) claimAs(claimant, n, most int) int {
	r := delivery.ClaimRequest{Claimant: fmt.Sprint("claimant ", claimant), Max: n, MaxInFlight: most, Lease: time.Duration(20+w.r.IntN(60)) * time.Second}
	claims, err := w.store.Claim(w.ctx, r)
	w.fail(err)
	text := ""
	for _, c := range claims {
		text += fmt.Sprintf(" %d of %d:%q fence %d", c.Seq, int64(c.Subscription), c.Asset, c.Fence)
	}
	w.note("claimant %d claims %d, at most %d each, for %v:%s", claimant, n, most, r.Lease, text)
	w.fail(w.m.claimed(claims, r))
	w.held[claimant] = append(w.held[claimant], claims...)
	return len(claims)
}

func (w *walk) claim() { w.claimAs(w.r.IntN(3), 1+w.r.IntN(5), 1+w.r.IntN(6)) }

// drain claims all that there is. What the model knows could be claimed, and was not, would
// wait for ever.
func (w *walk) drain() {
	w.ripen()
	for {
		got := w.claimAs(0, 1000, 100)
		parked, err := w.store.Park(w.ctx, 100)
		w.fail(err)
		if got == 0 && parked == 0 {
			break
		}
	}
	w.fail(w.m.exhausted(100))
	woken, err := w.store.WakeOrphans(w.ctx)
	w.fail(err)
	if woken != 0 {
		w.fail(fmt.Errorf("%d streams would have waited for ever", woken))
	}
}

// some takes a random part of what a claimant holds, and now and then something stale.
func (w *walk) some() (claims []delivery.Claim) {
	k := w.r.IntN(3)
	keep := w.held[k][:0:0]
	for _, c := range w.held[k] {
		if w.chance(60) {
			claims = append(claims, c)
		} else {
			keep = append(keep, c)
		}
	}
	w.held[k] = keep
	if len(w.stale) > 0 && w.chance(40) {
		// Most telling where another has the delivery by now.
		stale := slices.DeleteFunc(slices.Clone(w.stale), func(c delivery.Claim) bool {
			d := w.m.deliveries[deliveryKey{c.Subscription, c.Seq}]
			return d.state != delivery.Delivering || d.fence == c.Fence
		})
		if len(stale) == 0 {
			stale = w.stale
		}
		c := stale[w.r.IntN(len(stale))]
		if !slices.ContainsFunc(claims, func(x delivery.Claim) bool {
			return x.Subscription == c.Subscription && x.Asset == c.Asset && x.Fence == c.Fence
		}) {
			claims = append(claims, c)
		}
	}
	return claims
}

func (w *walk) settle() {
	claims := w.some()
	results := make([]delivery.Result, len(claims))
	text := ""
	for i := range claims {
		r := delivery.Result{Claim: &claims[i], Delay: time.Duration(w.r.IntN(60)) * time.Second, Attempt: delivery.AttemptEvidence{Outcome: "http_status"}}
		switch n := w.r.IntN(100); {
		case n < 45:
			r.Verdict = delivery.Succeeded
		case n < 80:
			r.Verdict = delivery.Failed
		case n < 83:
			r.Verdict, r.Gone = delivery.Failed, true
		case n < 86:
			r.Verdict, r.Blameless = delivery.Failed, true
		case n < 92:
			r.Verdict = delivery.Postponed
		default:
			r.Verdict = delivery.Released
		}
		results[i] = r
		text += fmt.Sprintf(" %d of %d fence %d verdict %d gone %v", claims[i].Seq, int64(claims[i].Subscription), claims[i].Fence, r.Verdict, r.Gone)
	}
	w.note("settle%s", text)
	var settlements []delivery.Settlement
	var err error
	if w.chance(25) {
		err = pgx.BeginFunc(w.ctx, w.pool, func(tx pgx.Tx) (err error) {
			settlements, err = w.store.SettleTx(w.ctx, tx, results)
			return err
		})
	} else {
		settlements, err = w.store.Settle(w.ctx, results)
	}
	w.fail(err)
	want := w.m.settle(results)
	for i, s := range settlements {
		if s.State != want[i] {
			w.fail(fmt.Errorf("%d is %s, not %s", claims[i].Seq, s.State, want[i]))
		}
		w.stale = append(w.stale, claims[i])
	}
}

// sendAhead claims a stream and settles a part of what follows in it under the one lease,
// in one call or several. Where it does not end, the claimant holds what comes next.
func (w *walk) sendAhead() {
	k := w.r.IntN(3)
	r := delivery.ClaimRequest{Claimant: fmt.Sprint("claimant ", k), Max: 1, MaxInFlight: 1 + w.r.IntN(6), Lease: time.Minute, Ahead: 1 + w.r.IntN(4)}
	claims, err := w.store.Claim(w.ctx, r)
	w.fail(err)
	w.fail(w.m.claimed(claims, r))
	runs, err := w.store.Ahead(w.ctx, claims, r.Ahead)
	w.fail(err)
	if len(claims) == 0 {
		return
	}
	run := slices.Concat(claims, runs[0])
	text := ""
	for i, x := range w.m.behind(w.m.holds(&run[0])) {
		if x.state != delivery.Pending || !x.due.IsZero() || x.attempts > 0 {
			run = run[:min(len(run), i+1)]
			break
		}
		if i+1 >= len(run) || run[i+1].Seq != x.seq {
			w.fail(fmt.Errorf("%d is behind %d, and not in %+v", x.seq, run[0].Seq, run))
		}
		text += fmt.Sprintf(" %d", x.seq)
	}
	w.note("claimant %d claims %d of %d:%q fence %d, behind it%s", k, run[0].Seq, int64(run[0].Subscription), run[0].Asset, run[0].Fence, text)
	var results []delivery.Result
	send := func() {
		settlements, err := w.store.Settle(w.ctx, results)
		w.fail(err)
		want := w.m.settle(results)
		for i, s := range settlements {
			w.note("  %d is %s", results[i].Claim.Seq, s.State)
			if s.State != want[i] {
				w.fail(fmt.Errorf("%d is %s, not %s", results[i].Claim.Seq, s.State, want[i]))
			}
			w.stale = append(w.stale, *results[i].Claim)
		}
		results = nil
	}
	for i := range run {
		last := i+1 == len(run)
		x := delivery.Result{Claim: &run[i], Verdict: delivery.Succeeded, Delay: time.Minute, Attempt: delivery.AttemptEvidence{Outcome: "http_status"}}
		if last || w.chance(25) {
			x.Verdict = delivery.Verdict(1 + w.r.IntN(4))
			results = append(results, x)
			send()
			return
		}
		x.Next = &run[i+1]
		results = append(results, x)
		if w.chance(50) {
			send()
			if w.chance(30) { // and here it stops for now
				w.held[k] = append(w.held[k], run[i+1])
				return
			}
		}
	}
}

func (w *walk) renew() {
	claims := w.some()
	pointers := make([]*delivery.Claim, len(claims))
	var want []*delivery.Claim
	lease := time.Duration(20+w.r.IntN(60)) * time.Second
	for i := range claims {
		pointers[i] = &claims[i]
		if d := w.m.leased(&claims[i]); d != nil { // wherever in the stream it stands
			d.lease = w.m.now.Add(lease)
		} else {
			want = append(want, &claims[i])
		}
	}
	lost, err := w.store.Renew(w.ctx, pointers, lease)
	w.fail(err)
	w.note("renew %d, lost %d", len(claims), len(lost))
	if !slices.Equal(lost, want) {
		w.fail(fmt.Errorf("%d lost, not %d", len(lost), len(want)))
	}
	for _, c := range claims {
		if w.m.holds(&c) != nil {
			w.held[0] = append(w.held[0], c)
		}
	}
}

// crash lets a claimant forget what it holds; it may wake up later.
func (w *walk) crash() {
	k := w.r.IntN(3)
	w.note("claimant %d crashes with %d", k, len(w.held[k]))
	w.stale = append(w.stale, w.held[k]...)
	w.held[k] = nil
}

func (w *walk) advance() {
	d := time.Duration(w.r.IntN(90_000)) * time.Millisecond
	w.clock.advance(d)
	w.m.now = w.clock.now()
	w.note("%v pass", d)
}

func (w *walk) reclaim() {
	reclaimed, err := w.store.Reclaim(w.ctx, 1000)
	w.fail(err)
	w.note("reclaim: %d", len(reclaimed))
	got := map[deliveryKey]delivery.Settled{}
	for _, r := range reclaimed {
		got[deliveryKey{r.Subscription, r.Seq}] = r.State
	}
	if want := w.m.reclaim(); !maps.Equal(got, want) {
		w.fail(fmt.Errorf("reclaimed %v, not %v", got, want))
	}
}

func (w *walk) ripen() {
	n, next, err := w.store.Ripen(w.ctx, 1000)
	w.fail(err)
	w.note("ripen: %d, the next in %v", n, next)
	wantN, wantNext := w.m.ripen()
	if n != wantN || next != wantNext {
		w.fail(fmt.Errorf("ripened %d, the next in %v; not %d and %v", n, next, wantN, wantNext))
	}
}

func (w *walk) park() {
	n, err := w.store.Park(w.ctx, 1+w.r.IntN(6))
	w.fail(err)
	w.note("park: %d", n)
}

// any returns a random delivery: often one in the given state.
func (w *walk) any(of delivery.DeliveryState) *modelDelivery {
	all := w.m.sorted()
	some := slices.DeleteFunc(slices.Clone(all), func(d *modelDelivery) bool { return d.state != of })
	if len(some) > 0 && w.chance(70) {
		all = some
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.r.IntN(len(all))]
}

func (w *walk) operate(what string, d *modelDelivery, got, want error) {
	w.note("%s %d of %d: %v", what, d.seq, int64(d.sub), got)
	if (got == nil) != (want == nil) || want != nil && !errors.Is(got, want) {
		w.fail(fmt.Errorf("%s %d of %d: %s, not %s", what, d.seq, int64(d.sub), fmt.Sprint(got), fmt.Sprint(want)))
	}
}

func (w *walk) revive() {
	if d := w.any(delivery.Dead); d != nil {
		w.operate("revive", d, w.store.Revive(w.ctx, d.sub, delivery.ID(d.seq)), w.m.revive(d))
	}
}

func (w *walk) discard() {
	if d := w.any(delivery.Pending); d != nil {
		w.operate("discard", d, w.store.Discard(w.ctx, d.sub, delivery.ID(d.seq), "no more"), w.m.discard(d, "no more"))
	}
}

func (w *walk) release() {
	if d := w.any(delivery.Dead); d != nil {
		w.operate("release", d, w.store.ReleaseHeld(w.ctx, d.sub, delivery.ID(d.seq)), w.m.release(d))
	}
}

func (w *walk) sub() *modelSub {
	var all []delivery.SubscriptionID
	for id, s := range w.m.subs {
		if !s.deleted {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return w.m.subs[all[w.r.IntN(len(all))]]
}

// switchState pauses a subscription that is active, and enables one that is not.
func (w *walk) switchState() {
	s := w.sub()
	var err error
	if s.state == delivery.Active && w.chance(50) {
		_, err = w.store.Pause(w.ctx, s.id, "for a while")
		s.state = delivery.Paused
	} else {
		_, err = w.store.Enable(w.ctx, s.id)
		s.state, s.failures = delivery.Active, 0
	}
	w.fail(err)
	w.note("subscription %d is %s", int64(s.id), s.state)
}

func (w *walk) change() {
	s := w.sub()
	s.maxAttempts = 1 + w.r.IntN(3)
	s.onDead = []delivery.OnDead{delivery.Continue, delivery.Hold}[w.r.IntN(2)]
	s.maxInFlight = w.r.IntN(4)
	_, err := w.store.UpdateSubscription(w.ctx, s.id, func(x *delivery.Settings) error {
		x.MaxAttempts, x.OnDead, x.MaxInFlight = s.maxAttempts, s.onDead, s.maxInFlight
		return nil
	})
	w.fail(err)
	w.note("change %d: %+v", int64(s.id), *s)
}

// replace deletes a subscription and makes another.
func (w *walk) replace() {
	s := w.sub()
	w.fail(w.store.DeleteSubscription(w.ctx, s.id))
	s.deleted = true
	w.note("delete %d", int64(s.id))
	w.subscribe(s.types)
	if w.chance(50) {
		n, err := w.store.DiscardDeleted(w.ctx, 1000)
		w.fail(err)
		if want := w.m.discardDeleted(); n != want {
			w.fail(fmt.Errorf("%d discarded, not %d", n, want))
		}
		w.note("discard %d of deleted ones", n)
	}
}

// compare compares all that is stored with the model.
func (w *walk) compare() {
	w.t.Helper()
	rows, err := w.pool.Query(w.ctx, `
		SELECT format('subscription %s %s failures %s deleted %s', s.id, s.state, s.failure_count,
		              CASE WHEN s.deleted_at IS NULL THEN 'false' ELSE 'true' END)
		FROM postlane.subscriptions s
		UNION ALL
		SELECT format('%s of %s asset "%s" %s held %s attempts %s tries %s reason "%s"', d.seq, d.subscription_id, d.asset,
		              CASE WHEN d.held_at IS NOT NULL THEN 'dead' WHEN l.seq IS NOT NULL THEN 'delivering' ELSE 'pending' END,
		              CASE WHEN d.held_at IS NOT NULL THEN 'true' ELSE 'false' END, d.attempts,
		              (SELECT count(*) FROM postlane.attempts a WHERE a.subscription_id = d.subscription_id AND a.seq = d.seq), d.reason)
		       || coalesce(' due ' || to_json(d.due_at AT TIME ZONE 'UTC')::text, '')
		       || CASE WHEN l.seq IS NULL THEN '' ELSE format(' attempt %s fence %s until %s', l.attempt, l.fence, to_json(l.lease_until AT TIME ZONE 'UTC')) END
		FROM postlane.deliveries d LEFT JOIN postlane.leases l ON l.subscription_id = d.subscription_id AND l.seq = d.seq
		UNION ALL
		SELECT format('%s of %s asset "%s" %s held false attempts %s tries %s reason "%s"', s.seq, s.subscription_id, s.asset, s.state, s.attempts,
		              (SELECT count(*) FROM postlane.attempts a WHERE a.subscription_id = s.subscription_id AND a.seq = s.seq), s.reason)
		FROM postlane.settled s`)
	w.fail(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.fail(err)
	for i := range got { // "2026-03-01T12:00:00" as Go writes it
		got[i] = zoned(got[i])
	}
	slices.Sort(got)
	want := w.m.lines()
	if slices.Equal(got, want) {
		return
	}
	var differs []string
	for _, line := range got {
		if !slices.Contains(want, line) {
			differs = append(differs, "  stored: "+line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			differs = append(differs, "  model:  "+line)
		}
	}
	w.t.Fatalf("the store is not its model:\n%s", strings.Join(differs, "\n"))
}

// zoned rewrites the JSON times of a line, which are in quotes and have no zone.
func zoned(line string) string {
	for _, word := range []string{` due "`, ` until "`} {
		before, rest, found := strings.Cut(line, word)
		if !found {
			continue
		}
		at, after, _ := strings.Cut(rest, `"`)
		line = before + strings.TrimSuffix(word, `"`) + at + "Z" + after
	}
	return line
}
