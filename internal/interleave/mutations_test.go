package interleave_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/interleave"
)

// mutations are faults that no single session would notice, each with a scenario that has
// an order of steps which shows it.
var mutations = map[string]struct {
	scenario string
	interleave.Mutation
}{
	"a claim locks nothing": {
		"two claims", interleave.Mutation{Statement: "DeliveryClaim", Old: "FOR UPDATE OF x SKIP LOCKED"},
	},
	"a claim takes what is not first": {
		"discarding the first and claiming", interleave.Mutation{Statement: "DeliveryClaim", Old: "ORDER BY e.seq LIMIT 1) = r.seq", New: "ORDER BY e.seq LIMIT 1) IS NOT NULL"},
	},
	"parking does not lock what stands before": {
		"settling and parking", interleave.Mutation{Statement: "DeliveryPark", Old: "FOR KEY SHARE OF f SKIP LOCKED"},
	},
	"settling asks for no fence": {
		"settling and reclaiming", interleave.Mutation{Statement: "DeliverySettleDelivered", Old: "AND e.seq = i.from_seq AND e.fence = i.fence", New: "AND e.seq = i.from_seq"},
	},
	"settling does not lock the lease": {
		"settling and reclaiming", interleave.Mutation{Statement: "DeliverySettleDelivered", Old: "FOR UPDATE OF e"},
	},
	"reclaiming does not lock the lease": {
		"settling and reclaiming", interleave.Mutation{Statement: "LeaseReclaim", Old: "FOR UPDATE OF l SKIP LOCKED"},
	},
	"reclaiming does not lock the lease that is being renewed": {
		"renewing and reclaiming", interleave.Mutation{Statement: "LeaseReclaim", Old: "FOR UPDATE OF l SKIP LOCKED"},
	},
	"a claim does not lock the pace": {
		"two claims of a limited subscription", interleave.Mutation{Statement: "DeliveryClaim", Old: "FOR NO KEY UPDATE OF p SKIP LOCKED"},
	},
	"a claim does not lock the breaker": {
		"two claims of a probe", interleave.Mutation{Statement: "DeliveryClaim", Old: "FOR NO KEY UPDATE OF b SKIP LOCKED"},
	},
	"counting a failure does not lock the subscription": {
		"a success that closes a breaker, and a failure", interleave.Mutation{Statement: "SubscriptionLockSettling", Old: "FOR NO KEY UPDATE OF s"},
	},
	"an operator does not look again what is in flight": {
		"discarding the first and claiming", interleave.Mutation{Statement: "DeliveryInFlight", Old: "SELECT count(*) > 0", New: "SELECT count(*) > 1"},
	},
	"an operator does not lock the stream": {
		"running ahead and discarding", interleave.Mutation{Statement: "StreamLock", Old: "FOR UPDATE"},
	},
	"settling wakes nobody": {
		"settling and parking", interleave.Mutation{Statement: "StreamWake", Old: "AND n.held_at IS NULL", New: "AND false"},
	},
	"a replay is not locked": {
		"two go on with a replay", interleave.Mutation{Statement: "ReplayLock", Old: "FOR NO KEY UPDATE"},
	},
	"what is replayed is not ready behind what waits": {
		"replaying and settling", interleave.Mutation{
			Statement: "ReplayBatch", Old: "PARTITION BY n.asset ORDER BY n.seq) = 1",
			New: `PARTITION BY n.asset ORDER BY n.seq) = 1 AND NOT EXISTS (SELECT FROM postlane.deliveries w
				WHERE w.subscription_id = g.subscription_id AND w.asset IS NOT DISTINCT FROM n.asset)`,
		},
	},
	"a replay takes no turns with retention": {
		"replaying and pruning", interleave.Mutation{Statement: "ReplayEventsKept", Old: "pg_advisory_xact_lock_shared(1886351212, 2)", New: "NULL"},
	},
	"retention takes no turns with a replay": {
		"replaying and pruning", interleave.Mutation{Statement: "ReplayEventsGoing", Old: "pg_advisory_xact_lock(1886351212, 2)", New: "NULL"},
	},
	"a replay does not see that its subscription is deleted": {
		"replaying and deleting the subscription", interleave.Mutation{Statement: "ReplayBatch", Old: "WHERE s.deleted_at IS NULL"},
	},
}

func TestTheExplorerFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for name, m := range mutations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m.Applied = new(atomic.Int64)
			orders, err := explore(t, scenarios[m.scenario], m.Mutation)
			is := is.New(t)
			is.True(m.Applied.Load() > 0) // the statement still has what is to be broken
			var v *interleave.Violation
			if !errors.As(err, &v) {
				t.Fatalf("nothing was found in %d orders: %v", orders, err)
			}
			t.Logf("in order %d: %v", orders+1, v)
		})
	}
}
