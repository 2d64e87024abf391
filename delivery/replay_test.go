package delivery_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/pgtest/plans"
	"github.com/postlane-go/postlane/internal/receiver"
)

// replayOf asks for everything of the last hour.
func replayOf(sub delivery.SubscriptionID, id string) delivery.ReplayRequest {
	return delivery.ReplayRequest{Subscription: sub, ID: id, Since: time.Now().Add(-time.Hour), By: "a test"}
}

func (b *bundle) replay(r delivery.ReplayRequest) delivery.Replayed {
	b.t.Helper()
	did, err := b.store.Replay(b.ctx, r)
	b.is.NoErr(err)
	return did
}

// What was delivered arrives again, each stream in its order and one at a time, under the
// event's id and a new place in the stream; and another subscription gets nothing.
func TestReplayThroughADispatcher(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	sub := s.endpoint("/a")
	s.endpoint("/other")
	arrivals, stop := s.receiver.Arrivals(1000)
	defer stop()
	s.dispatch(s.config())
	enqueued := s.enqueue(slices.Concat(slices.Repeat([]string{"x", "y", ""}, 10), names("k", 10))...)
	s.is.NoErr(s.receiver.WaitFor(s.within(patience), 80))
	s.eventually(func() bool { return s.counts(sub) == "delivered:40 " })

	did := s.replay(replayOf(sub, "again"))
	s.is.Equal(did, delivery.Replayed{Deliveries: 40, Now: 40, Done: true})
	s.is.NoErr(s.receiver.WaitForRequests(s.within(patience), 120))
	s.eventually(func() bool { return s.counts(sub) == "delivered:80 " })
	s.is.Equal(s.requests("/other"), 40)
	v := s.receiver.VerdictOf("/a")
	s.is.Equal([]int64{v.Requests, v.Duplicates, v.Overlaps}, []int64{80, 40, 0})

	written := map[string]int{}
	for i, e := range enqueued {
		written[e.ID] = i
	}
	last := map[string]receiver.Arrival{} // of each stream
	replayed := 0
	for range 120 {
		a := await(t, arrivals)
		before := last[a.Path+a.Asset]
		if a.Path == "/a" && !a.First() {
			replayed++
			s.is.Equal(a.Prev, before.Seq)
			s.is.True(before.First() || written[before.ID] < written[a.ID])
			s.is.True(a.Seq > enqueued[len(enqueued)-1].Seq)
		}
		last[a.Path+a.Asset] = a
	}
	s.is.Equal(replayed, 40)

	log := s.log(sub)
	origin, err := s.store.ReplayOf(s.ctx, sub, log[len(log)-1].ID)
	s.is.NoErr(err)
	s.is.Equal(origin, delivery.ReplayOrigin{ID: "again", By: "a test"})
	origin, err = s.store.ReplayOf(s.ctx, sub, delivery.ID(enqueued[0].Seq))
	s.is.NoErr(err)
	s.is.Equal(origin, delivery.ReplayOrigin{})
}

// The same request again does nothing; one that was interrupted goes on where it stopped,
// and any number may do so at once.
func TestReplayGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	const n = 5500
	b.enqueue(names("k", n)...)
	b.exec("DELETE FROM postlane.deliveries")

	r := replayOf(sub, "one")
	r.For = time.Nanosecond
	did := b.replay(r)
	b.is.Equal(did, delivery.Replayed{Deliveries: 1000, Now: 1000})
	var wg sync.WaitGroup
	r.For = 0
	for range 4 {
		wg.Go(func() {
			_, err := b.store.Replay(b.ctx, r)
			b.is.NoErr(err)
		})
	}
	wg.Wait()
	b.is.Equal(b.replay(r), delivery.Replayed{Deliveries: n, Done: true})
	b.is.Equal(b.counts(sub), fmt.Sprintf("pending:%d ", n))
	b.is.Equal(one[int64](b, "SELECT count(DISTINCT event_id) FROM postlane.deliveries"), int64(n))
	b.is.Equal(one[bool](b, `SELECT bool_and(d.event_seq > before) FROM (
		SELECT r.event_seq, lag(r.event_seq, 1, 0::bigint) OVER (ORDER BY r.seq) AS before FROM postlane.replayed r) d`), true)

	r.ID = "two" // another one, of the same range
	b.is.Equal(b.replay(r), delivery.Replayed{Deliveries: n, Now: n, Done: true})
}

// Whoever begins the same replay at once does it once.
func TestReplayBeginsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	b.enqueue(names("k", 50)...)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r := replayOf(sub, "one")
			r.Since = time.Unix(0, 0)
			_, err := b.store.Replay(b.ctx, r)
			b.is.NoErr(err)
		})
	}
	wg.Wait()
	b.is.Equal(b.counts(sub), "pending:100 ")
}

func TestReplayChooses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := func(hour int, e delivery.Event) {
		b.exec("UPDATE postlane.events SET created_at = now() - interval '100 hours' + $1 * interval '1 hour' WHERE id = $2", hour, b.enqueueEvents(e)[0].ID)
	}
	for hour := range 10 {
		for _, e := range []delivery.Event{
			{Tenant: tenant, Type: "thing.changed", Asset: "a", Payload: []byte("1")},
			{Tenant: tenant, Type: "thing.made", Payload: []byte("1")},
			{Tenant: tenant, Type: "other.thing", Asset: "a", Payload: []byte("1")},
			{Tenant: "strange", Type: "thing.changed", Asset: "a", Payload: []byte("1")},
		} {
			at(10*hour, e)
		}
	}
	// It was made after all of them.
	sub := b.subscribe(func(s *delivery.Settings) { s.EventTypes = []string{"thing.*"} })
	before := b.state()
	hours := func(n int) time.Time { return time.Now().Add(time.Duration(n-100) * time.Hour).Add(-time.Minute) }
	for name, test := range map[string]struct {
		change func(*delivery.ReplayRequest)
		want   int64
	}{
		"all":           {func(*delivery.ReplayRequest) {}, 20},
		"since":         {func(r *delivery.ReplayRequest) { r.Since = hours(50) }, 10},
		"until":         {func(r *delivery.ReplayRequest) { r.Until = hours(20) }, 4},
		"both":          {func(r *delivery.ReplayRequest) { r.Since, r.Until = hours(20), hours(40) }, 4},
		"none":          {func(r *delivery.ReplayRequest) { r.Until = time.Unix(3, 0) }, 0},
		"type":          {func(r *delivery.ReplayRequest) { r.EventTypes = []string{"thing.made"} }, 10},
		"pattern":       {func(r *delivery.ReplayRequest) { r.EventTypes = []string{"thing.*", "*"} }, 20},
		"not its types": {func(r *delivery.ReplayRequest) { r.EventTypes = []string{"other.*"} }, 0},
		"asset":         {func(r *delivery.ReplayRequest) { r.Asset, r.OfAsset = "a", true }, 10},
		"no asset":      {func(r *delivery.ReplayRequest) { r.OfAsset = true }, 10},
	} {
		r := delivery.ReplayRequest{Subscription: sub, Since: time.Unix(1, 0)}
		test.change(&r)
		c, err := b.store.CountReplay(b.ctx, r)
		b.is.NoErr(err)
		if c.Events != test.want || c.More || c.KeptSince.IsZero() != (name == "since" || name == "both") {
			t.Errorf("%s: %+v", name, c)
		}
	}
	b.unchanged(before)

	r := delivery.ReplayRequest{Subscription: sub, ID: "x", Since: hours(50), EventTypes: []string{"thing.made"}}
	b.is.Equal(b.replay(r).Now, int64(5))
	for range 5 { // one stream, one at a time
		claims := b.claim(10)
		b.is.Equal(len(claims), 1)
		b.settle(delivery.Succeeded, claims...)
	}
	b.is.Equal(b.counts(sub), "delivered:5 ")

	// The id stands for this range and no other.
	for _, change := range []func(*delivery.ReplayRequest){
		func(r *delivery.ReplayRequest) { r.Since = hours(51) },
		func(r *delivery.ReplayRequest) { r.Until = hours(90) },
		func(r *delivery.ReplayRequest) { r.EventTypes = nil },
		func(r *delivery.ReplayRequest) { r.OfAsset = true },
	} {
		other := r
		change(&other)
		_, err := b.store.Replay(b.ctx, other)
		b.is.True(errors.Is(err, delivery.ErrReplayConflict))
	}
	for _, change := range []func(*delivery.ReplayRequest){
		func(r *delivery.ReplayRequest) { r.ID = "" },
		func(r *delivery.ReplayRequest) { r.ID = "no spaces" },
		func(r *delivery.ReplayRequest) { r.Since = time.Time{} },
		func(r *delivery.ReplayRequest) { r.Until = r.Since },
		func(r *delivery.ReplayRequest) { r.EventTypes = []string{"a*b"} },
		func(r *delivery.ReplayRequest) { r.Asset = "\x00" },
	} {
		wrong := r
		change(&wrong)
		_, err := b.store.Replay(b.ctx, wrong)
		b.is.True(errors.Is(err, delivery.ErrInvalid))
	}
	b.is.NoErr(b.store.DeleteSubscription(b.ctx, sub))
	_, err := b.store.Replay(b.ctx, r)
	b.is.True(errors.Is(err, delivery.ErrNotFound))
	_, err = b.store.CountReplay(b.ctx, r)
	b.is.True(errors.Is(err, delivery.ErrNotFound))
}

// What is replayed stands behind all that waits in its stream.
func TestReplayStandsBehindWhatWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	first := b.enqueue("a", "a")
	sub := b.claim(1)[0]
	b.settle(delivery.Succeeded, sub)
	b.replay(replayOf(sub.Subscription, "x"))
	b.enqueue("a")
	var order []string
	for range 4 {
		claims := b.claim(10)
		b.is.Equal(len(claims), 1)
		order = append(order, claims[0].EventID)
		b.settle(delivery.Succeeded, claims...)
	}
	b.is.Equal(order[:3], []string{first[1].ID, first[0].ID, first[1].ID})
	b.is.Equal(len(b.claim(10)), 0)
}

// Retention keeps an event as long as a replay of it waits or is dead, and forgets the
// replay with it.
func TestPruneKeepsWhatIsReplayed(t *testing.T) {
	t.Parallel()
	b, c := setupLater(t)
	sub := b.subscribe(func(s *delivery.Settings) { s.MaxAttempts = 1 })
	b.enqueue("a")
	b.settle(delivery.Succeeded, b.claim(1)...)
	b.replay(replayOf(sub, "x"))
	r := delivery.Retention{Settled: time.Hour, Events: time.Hour, Dead: 100 * time.Hour}
	c.advance(2 * time.Hour)
	b.is.Equal(b.prune(r), delivery.Pruned{Deliveries: 1, Attempts: 1})
	claims := b.claim(1)
	b.is.Equal(len(claims), 1) // with its payload
	b.settle(delivery.Failed, claims...)
	b.is.Equal(b.counts(sub), "dead:1 ")
	c.advance(2 * time.Hour)
	b.is.Equal(b.prune(r), delivery.Pruned{}) // it can be revived
	b.is.NoErr(b.store.Revive(b.ctx, sub, claims[0].ID()))
	b.settle(delivery.Succeeded, b.claim(1)...)
	c.advance(2 * time.Hour)
	b.is.Equal(b.prune(r), delivery.Pruned{Deliveries: 1, Attempts: 2, Events: 1})
	b.is.Equal(one[int64](b, "SELECT (SELECT count(*) FROM postlane.replayed) + (SELECT count(*) FROM postlane.replays)"), int64(0))
	count, err := b.store.CountReplay(b.ctx, replayOf(sub, ""))
	b.is.NoErr(err)
	b.is.Equal(count, delivery.ReplayCount{})
}

// Of a replay and a pass of retention at the same moment either sees the other.
func TestReplayAndPruneTakeTurns(t *testing.T) {
	t.Parallel()
	b, c := setupLater(t)
	sub := b.subscribe()
	e := b.enqueue("a")[0]
	b.settle(delivery.Succeeded, b.claim(1)...)
	c.advance(2 * time.Hour)
	tx, err := b.pool.Begin(b.ctx)
	b.is.NoErr(err)
	defer func() { _ = tx.Rollback(b.ctx) }()
	// As a replay's batch that has not committed.
	_, err = tx.Exec(b.ctx, "SELECT pg_advisory_xact_lock_shared(1886351212, 2)")
	b.is.NoErr(err)
	_, err = tx.Exec(b.ctx, `WITH d AS (
		INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type, asset, ready)
		SELECT $1, nextval('postlane.delivery_seq'), e.tenant, e.id, e.type, e.asset, 1 FROM postlane.events e RETURNING *)
		INSERT INTO postlane.replayed SELECT d.subscription_id, d.seq, $2, d.tenant, 'x' FROM d`, int64(sub), e.Seq)
	b.is.NoErr(err)
	pruned := make(chan delivery.Pruned)
	go func() {
		p, err := b.store.Prune(b.ctx, delivery.Retention{Events: time.Hour})
		b.is.NoErr(err)
		pruned <- p
	}()
	pgtest.WaitForBlocked(t, b.pool, 1)
	b.is.NoErr(tx.Commit(b.ctx))
	b.is.Equal(<-pruned, delivery.Pruned{})
}

// A batch reads its part of the events and no more, whatever the planner knows.
func TestReplayPlans(t *testing.T) {
	t.Parallel()
	b, _, w := setupPlans(t)
	subs := load(b, "uniform", 20_000)
	b.exec("UPDATE postlane.events SET created_at = now() - interval '100 hours' + seq * interval '10 seconds'")
	b.exec("UPDATE postlane.subscriptions SET event_types = '{thing.*}'")
	r := delivery.ReplayRequest{Subscription: subs[0], ID: "x", Since: time.Now().Add(-6 * time.Hour), Until: time.Now().Add(-5 * time.Hour)}
	seen := w.During(func() {
		_, err := b.store.CountReplay(b.ctx, r)
		b.is.NoErr(err)
		b.is.True(b.replay(r).Done)
		b.prune(delivery.Retention{Events: time.Hour, Batch: 500})
	})
	few := func(_ *plans.Plan, n *plans.Node) bool {
		return n.Relation == "subscriptions" || n.Relation == "subscription_patterns" || n.Relation == "subscription_secrets" || n.Relation == "replays"
	}
	searching := func(p plans.Plan) bool { return p.Name() == "ReplayPosition" }
	plans.Cheap(t, "replaying", 2500, few, slices.DeleteFunc(slices.Clone(seen), searching), "ReplayBatch", "ReplayLock", "PruneEvents")
	// The search looks at a thousand events near each of the dozen places where it looks.
	plans.Cheap(t, "searching", 12_000, few, seen, "ReplayPosition")
}

// Payloads that take long to look into make a batch smaller, and not a replay impossible.
func TestReplayOfWhatTakesLongToLookInto(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(b.conditions("a exists"))
	const n = 30
	for i := range n {
		b.enqueueEvents(delivery.Event{Tenant: tenant, Type: "thing.changed", Payload: fmt.Appendf(nil, `{"a":%d}`, i)})
	}
	// Two of them are as good as large ones: more than there is time for in one statement.
	b.exec(`CREATE OR REPLACE FUNCTION postlane.event_json(payload bytea, content_type text) RETURNS jsonb LANGUAGE plpgsql AS $$
		DECLARE document constant jsonb := convert_from(payload, 'UTF8');
		BEGIN
			IF document -> 'a' IN ('5', '25') THEN PERFORM pg_sleep(3); END IF;
			RETURN document;
		END $$`)
	var counted delivery.ReplayCount
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		counted, err = b.store.CountReplay(b.ctx, replayOf(sub, ""))
		b.is.NoErr(err)
	})
	b.is.Equal(b.replay(replayOf(sub, "one")), delivery.Replayed{Deliveries: n, Now: n, Done: true})
	wg.Wait()
	b.is.True(counted.More && counted.Events < n)
}

// What is left when the subscription is deleted in the middle of a call is not done, and
// the caller is told.
func TestReplayOfASubscriptionThatIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*bundle, delivery.ReplayRequest) error{
		"replaying": func(b *bundle, r delivery.ReplayRequest) error {
			_, err := b.store.Replay(b.ctx, r)
			return err
		},
		"counting": func(b *bundle, r delivery.ReplayRequest) error {
			_, err := b.store.CountReplay(b.ctx, r)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			sub := b.subscribe()
			b.enqueue(names("k", 10)...)
			b.exec("DELETE FROM postlane.deliveries")
			tx, err := b.pool.Begin(b.ctx)
			b.is.NoErr(err)
			defer func() { _ = tx.Rollback(b.ctx) }()
			_, err = tx.Exec(b.ctx, "LOCK TABLE postlane.events")
			b.is.NoErr(err)
			told := make(chan error)
			go func() { told <- call(b, replayOf(sub, "one")) }()
			pgtest.WaitForBlocked(t, b.pool, 1) // it has seen the subscription, and no event
			b.is.NoErr(b.store.DeleteSubscription(b.ctx, sub))
			b.is.NoErr(tx.Rollback(b.ctx))
			b.is.True(errors.Is(<-told, delivery.ErrNotFound))
			b.is.Equal(b.counts(sub), "")
			b.is.Equal(one[int64](b, "SELECT count(*) FROM postlane.replays WHERE finished_at IS NOT NULL"), int64(0))
		})
	}
}
