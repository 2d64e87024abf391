package interleave_test

import (
	"flag"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/interleave"
)

// scenarios are the protocol's operations, each beside those that it has to come to terms
// with.
var scenarios = union(protocol, replays)

func union(sets ...map[string]*scenario) map[string]*scenario {
	all := map[string]*scenario{}
	for _, set := range sets {
		maps.Copy(all, set)
	}
	return all
}

var protocol = map[string]*scenario{
	"two claims": {
		setup:  func(w *world) { w.enqueue("a", "a") },
		actors: []func(*actor) error{(*actor).deliver, (*actor).deliver},
		gates:  claimGates,
	},
	"settling and parking": {
		setup: func(w *world) { w.enqueue("a", "a", "a"); w.claim() },
		actors: []func(*actor) error{
			func(x *actor) error { return x.say(x.claims, delivery.Result{Verdict: delivery.Succeeded}) },
			(*actor).park,
		},
		gates: slices.Concat(parkGates, goneGates),
	},
	"settling, parking and claiming": {
		setup: func(w *world) { w.enqueue("a", "a", "a"); w.claim() },
		actors: []func(*actor) error{
			func(x *actor) error { return x.say(x.claims, delivery.Result{Verdict: delivery.Succeeded}) },
			(*actor).park,
			(*actor).deliver,
		},
	},
	"releasing, parking and claiming": {
		setup: func(w *world) { w.enqueue("a", "a"); w.claim() },
		actors: []func(*actor) error{
			func(x *actor) error { return x.say(x.claims, delivery.Result{Verdict: delivery.Released}) },
			(*actor).park,
			(*actor).deliver,
		},
		lost: true, // what was released is sent again
	},
	"late commits": {
		setup: func(w *world) {},
		actors: []func(*actor) error{
			func(x *actor) error { return x.enqueues("a") },
			func(x *actor) error { return x.enqueues("a") },
			func(x *actor) error {
				if err := x.deliver(); err != nil {
					return err
				}
				return x.deliver()
			},
		},
		late: true,
	},
	"a late commit, parking and settling": {
		setup: func(w *world) { w.enqueue("a"); w.claim() },
		actors: []func(*actor) error{
			func(x *actor) error { return x.enqueues("a") },
			func(x *actor) error { return x.say(x.claims, delivery.Result{Verdict: delivery.Succeeded}) },
			(*actor).park,
		},
		late: true,
	},
	"settling and reclaiming": {
		setup: func(w *world) { w.enqueue("a", "a"); w.claim() },
		actors: []func(*actor) error{
			func(x *actor) error { return x.say(x.claims, delivery.Result{Verdict: delivery.Succeeded}) },
			(*actor).reclaim,
			(*actor).deliver,
		},
		lost: true,
	},
	"failing and reclaiming": {
		setup: func(w *world) { w.enqueue("a", "a"); w.claim() },
		actors: []func(*actor) error{
			func(x *actor) error {
				return x.say(x.claims, delivery.Result{Verdict: delivery.Failed, Delay: time.Hour})
			},
			(*actor).reclaim,
		},
		gates: parkGates,
		lost:  true,
	},
	"two reclaim": {
		setup:  func(w *world) { w.enqueue("a", "a", "b"); w.claim() },
		actors: []func(*actor) error{(*actor).reclaim, (*actor).reclaim},
		lost:   true,
	},
	"renewing and reclaiming": {
		setup:  func(w *world) { w.enqueue("a", "a"); w.claim() },
		actors: []func(*actor) error{(*actor).renew, (*actor).reclaim},
		gates:  parkGates,
		lost:   true,
	},
	"renewing, reclaiming and settling": {
		setup: func(w *world) { w.enqueue("a", "a"); w.claim() },
		actors: []func(*actor) error{
			(*actor).renew,
			(*actor).reclaim,
			func(x *actor) error { return x.say(x.claims, delivery.Result{Verdict: delivery.Succeeded}) },
		},
		lost: true,
	},
	"two claims of a limited subscription": {
		setup:  func(w *world) { w.enqueue("a", "b"); w.limit() },
		actors: []func(*actor) error{(*actor).deliver, (*actor).deliver},
		gates:  claimGates,
		most:   1,
	},
	"two claims of a probe": {
		setup:  func(w *world) { w.enqueue("a", "b"); w.fail() },
		actors: []func(*actor) error{(*actor).start, (*actor).start},
		gates:  claimGates,
		most:   1,
	},
	"a success that closes a breaker, and a failure": {
		setup: func(w *world) { w.enqueue("a", "b"); w.claim(); w.fail() },
		actors: []func(*actor) error{
			func(x *actor) error { return x.say(x.claims[:1], delivery.Result{Verdict: delivery.Succeeded}) },
			func(x *actor) error {
				return x.say(x.claims[1:], delivery.Result{Verdict: delivery.Failed, Delay: time.Hour, Unavailable: true})
			},
		},
	},
	"a retry, ripening and claiming": {
		setup: func(w *world) { w.enqueue("a", "a"); w.claim() },
		actors: []func(*actor) error{
			func(x *actor) error {
				return x.say(x.claims, delivery.Result{Verdict: delivery.Failed, Delay: time.Second})
			},
			func(x *actor) error { return x.ripen(time.Minute) },
			(*actor).deliver,
		},
		lost: true, // it is sent again
	},
	"running ahead and claiming": {
		setup:  func(w *world) { w.enqueue("a", "a", "a") },
		actors: []func(*actor) error{(*actor).run, (*actor).deliver},
	},
	"running ahead and reclaiming": {
		setup:  func(w *world) { w.enqueue("a", "a") },
		actors: []func(*actor) error{(*actor).run, (*actor).reclaim},
		lost:   true,
	},
	"running ahead and discarding": {
		setup:  func(w *world) { w.enqueue("a", "a") },
		actors: []func(*actor) error{(*actor).run, func(x *actor) error { return x.discard(1) }},
	},
	"discarding the first and claiming": {
		setup:  func(w *world) { w.enqueue("a", "a") },
		actors: []func(*actor) error{func(x *actor) error { return x.discard(0) }, (*actor).deliver},
		gates:  claimGates,
	},
	"discarding the second, settling and parking": {
		setup: func(w *world) { w.enqueue("a", "a", "a"); w.claim() },
		actors: []func(*actor) error{
			func(x *actor) error { return x.say(x.claims, delivery.Result{Verdict: delivery.Succeeded}) },
			func(x *actor) error { return x.discard(1) },
		},
	},
	"discarding and parking": {
		setup: func(w *world) { w.enqueue("a", "a") },
		actors: []func(*actor) error{
			func(x *actor) error { return x.discard(0) },
			(*actor).park,
		},
		gates: parkGates,
	},
	"reviving and claiming": {
		setup:  func(w *world) { w.enqueue("a", "a"); w.claim(); w.die(); w.sent = nil },
		actors: []func(*actor) error{func(x *actor) error { return x.revive(0) }, (*actor).deliver},
		gates:  claimGates,
		late:   true,
	},
	"reviving what holds its stream, and parking": {
		setup: func(w *world) {
			w.exec("UPDATE postlane.subscriptions SET on_dead = 'hold'")
			w.enqueue("a", "a")
			w.claim()
			w.die()
			w.sent = nil
		},
		actors: []func(*actor) error{func(x *actor) error { return x.revive(0) }, (*actor).park},
		gates:  parkGates,
	},
}

var larger = flag.Bool("larger", false, "try every scenario with all gates, which takes hours")

func TestNoOrderOfStepsBreaksAPromise(t *testing.T) {
	t.Parallel()
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := *s
			if *larger {
				s.gates = slices.Concat(claimGates, parkGates, goneGates)
			}
			orders, err := explore(t, &s, interleave.Mutation{})
			if err != nil {
				t.Fatal(err)
			}
			is.New(t).True(!s.byOne || batchOfOne.Applied.Load() > 0)
			t.Logf("%d orders", orders)
		})
	}
}
