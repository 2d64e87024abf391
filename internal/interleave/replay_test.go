package interleave_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/interleave"
)

// replays are replays beside whatever may happen to the events, the streams and the
// subscription that they are about.
var replays = map[string]*scenario{
	"replaying and claiming": {
		setup:  func(w *world) { w.delivered("a", "a", "b"); w.enqueue("a"); w.begun() },
		actors: []func(*actor) error{(*actor).replay, (*actor).deliver},
	},
	"replaying by one and claiming": {
		setup:  func(w *world) { w.delivered("a", "a"); w.begun() },
		actors: []func(*actor) error{(*actor).replay, (*actor).start},
		byOne:  true,
	},
	"replaying and settling": {
		setup: func(w *world) { w.delivered("a", "a"); w.enqueue("a"); w.claim(); w.begun() },
		actors: []func(*actor) error{
			(*actor).replay,
			func(x *actor) error { return x.say(x.claims, delivery.Result{Verdict: delivery.Succeeded}) },
		},
	},
	"replaying and parking": {
		setup:  func(w *world) { w.delivered("a", "a"); w.enqueue("a"); w.claim(); w.begun() },
		actors: []func(*actor) error{(*actor).replay, (*actor).park},
		gates:  parkGates,
	},
	"replaying and a late commit": {
		setup:  func(w *world) { w.delivered("a", "a") },
		actors: []func(*actor) error{(*actor).replay, func(x *actor) error { return x.enqueues("a") }},
		byOne:  true,
		late:   true,
	},
	"replaying, a late commit and parking": {
		setup: func(w *world) { w.delivered("a"); w.enqueue("a"); w.claim(); w.begun() },
		actors: []func(*actor) error{
			(*actor).replay,
			func(x *actor) error { return x.enqueues("a") },
			(*actor).park,
		},
		late: true,
	},
	"replaying and reviving": {
		setup:  func(w *world) { w.enqueue("a", "a"); w.claim(); w.die(); w.sent = nil; w.begun() },
		actors: []func(*actor) error{(*actor).replay, func(x *actor) error { return x.revive(0) }},
		late:   true,
	},
	"two begin a replay": {
		setup:  func(w *world) { w.delivered("a", "a") },
		actors: []func(*actor) error{(*actor).replay, (*actor).replay},
	},
	"two go on with a replay": {
		setup:  func(w *world) { w.delivered("a", "a"); w.begun() },
		actors: []func(*actor) error{(*actor).replay, (*actor).replay},
		byOne:  true,
	},
	"replaying and pruning": {
		setup: func(w *world) {
			w.delivered("a", "b")
			w.exec("UPDATE postlane.events SET created_at = $1", noon)
			w.begun()
		},
		actors: []func(*actor) error{(*actor).replay, (*actor).prune},
	},
	"replaying and deleting the subscription": {
		setup:  func(w *world) { w.delivered("a", "b"); w.begun() },
		actors: []func(*actor) error{(*actor).replay, (*actor).remove},
		gates:  []interleave.Gate{{Table: "postlane.deliveries", Event: "INSERT"}},
		byOne:  true,
	},
	"replaying, pausing and claiming": {
		setup:  func(w *world) { w.delivered("a", "a"); w.begun() },
		actors: []func(*actor) error{(*actor).replay, (*actor).pause, (*actor).start},
	},
}

// batchOfOne makes batches of a replay small, so that one of few events has several.
var batchOfOne = interleave.Mutation{Statement: "ReplayBatch", Old: "$11::integer", New: "least($11::integer, 1)", Applied: new(atomic.Int64)}

// replayID is the one replay that all are about.
const replayID = "again"

// delivered has setup enqueue events and deliver them.
func (w *world) delivered(assets ...string) {
	w.enqueue(assets...)
	for range assets {
		w.claim()
		_, err := w.store.Settle(w.ctx, results(w.claims, delivery.Result{Verdict: delivery.Succeeded}))
		w.is.NoErr(err)
	}
	w.claims, w.sent = nil, nil
}

// begun has setup begin the replay and do nothing of it, so that what follows has fewer
// steps.
func (w *world) begun() {
	w.exec(`INSERT INTO postlane.replays (subscription_id, tenant, id, since, until, event_types, requested_by, done_seq, last_seq)
		SELECT $1, $2, $3, $4, now(), '{}', '', 0, max(e.seq) FROM postlane.events e`, w.sub, tenant, replayID, since)
}

// since is before all events.
var since = time.Unix(1, 0)

// replay replays all that there is, and looks whether it may say that it did.
func (x *actor) replay() error {
	did, err := x.own().Replay(x.ctx, delivery.ReplayRequest{Subscription: x.sub, ID: replayID, Since: since})
	switch {
	case errors.Is(err, delivery.ErrNotFound) && x.deleted:
		return nil
	case err == nil && !did.Done:
		return fmt.Errorf("the replay ended before all was done, after %d", did.Deliveries)
	}
	return err
}

// start claims what there is and leaves it open.
func (x *actor) start() error {
	_, err := x.take(0)
	return err
}

// prune removes the events, all of which are old.
func (x *actor) prune() error {
	x.later = 2 * time.Hour
	_, err := x.own().Prune(x.ctx, delivery.Retention{Events: time.Hour})
	return err
}

// remove is what DeleteSubscription does before it waits for the requests that are open.
func (x *actor) remove() error {
	_, err := dbgen.New().SubscriptionDelete(x.ctx, x.session.Pool, int64(x.sub))
	x.deleted = true
	return err
}

// pause is the same of Pause.
func (x *actor) pause() error {
	_, err := dbgen.New().SubscriptionSetState(x.ctx, x.session.Pool, &dbgen.SubscriptionSetStateParams{ID: int64(x.sub), State: "paused"})
	return err
}

// ofReplays are faults of replays. $1 are the events that were committed before any began.
const ofReplays = `
	SELECT r.event_seq || ' is replayed twice' AS text FROM postlane.replayed r
	GROUP BY r.subscription_id, r.replay_id, r.event_seq HAVING count(*) > 1
	UNION ALL
	SELECT r.event_seq || ' is replayed before ' || n.event_seq FROM postlane.replayed r
	JOIN postlane.replayed n ON n.subscription_id = r.subscription_id AND n.replay_id = r.replay_id AND n.seq > r.seq AND n.event_seq < r.event_seq
	UNION ALL
	SELECT r.event_seq || ' is replayed, and ' || r.seq || ' is no delivery' FROM postlane.replayed r
	WHERE NOT EXISTS (SELECT FROM postlane.deliveries d WHERE d.subscription_id = r.subscription_id AND d.seq = r.seq)
	  AND NOT EXISTS (SELECT FROM postlane.settled s WHERE s.subscription_id = r.subscription_id AND s.seq = r.seq)
	UNION ALL
	SELECT d.seq || ' has no event' FROM postlane.deliveries d
	WHERE NOT EXISTS (SELECT FROM postlane.events e WHERE e.tenant = d.tenant AND e.id = d.event_id)
	UNION ALL
	SELECT 'a replay says ' || p.deliveries || ' and made ' || n.made FROM postlane.replays p
	CROSS JOIN LATERAL (SELECT count(*) AS made FROM postlane.replayed r WHERE r.subscription_id = p.subscription_id AND r.replay_id = p.id) n
	WHERE p.deliveries <> n.made
	UNION ALL
	SELECT 'a replay is done, and has not ' || e.seq FROM postlane.replays p
	JOIN postlane.events e ON e.seq = ANY ($1::bigint[])
	WHERE p.finished_at IS NOT NULL
	  AND NOT EXISTS (SELECT FROM postlane.replayed r WHERE r.subscription_id = p.subscription_id AND r.replay_id = p.id AND r.event_seq = e.seq)
	UNION ALL
	SELECT 'a replay is done after its subscription was deleted' FROM postlane.replays p
	JOIN postlane.subscriptions s ON s.id = p.subscription_id WHERE p.finished_at > s.deleted_at`
