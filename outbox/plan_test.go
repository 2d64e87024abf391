package outbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest/plans"
	"github.com/postlane-go/postlane/outbox"
)

// loadStates is a backlog of n messages in 1,000 queues, beside a tenth as many of
// each other state, that nothing analyzes.
const loadStates = `
	WITH staged AS MATERIALIZED (
		INSERT INTO postlane.outbox_messages (seq, max_attempts, id, queue, topic, payload)
		SELECT nextval('postlane.outbox_seq'), 20, 'm' || g, 'q' || g % 1000, 't', 'x' FROM generate_series(0, $1::int + 3 * $1::int / 10 - 1) g
		RETURNING seq, id, queue
	),
	numbered AS MATERIALIZED (SELECT seq, id, queue, (row_number() OVER (ORDER BY seq) - $1::int - 1) * 10 / $1::int AS part FROM staged),
	pending AS (
		INSERT INTO postlane.outbox_pending (seq, since, size, queue, id)
		SELECT seq, now() - interval '1 hour' + seq * interval '1 millisecond', 1, queue, id FROM numbered WHERE seq <= $1::int
	),
	scheduled AS (
		INSERT INTO postlane.outbox_scheduled (due_at, seq, size, queue, id)
		SELECT now() + interval '1 day' - seq * interval '1 millisecond', seq, 1, queue, id FROM numbered WHERE seq > $1::int AND part = 0
	),
	parked AS (
		INSERT INTO postlane.outbox_parked (seq, parked_at, attempts, size, queue, id, error)
		SELECT seq, now(), 20, 1, queue, id, 'refused' FROM numbered WHERE seq > $1::int AND part = 1
	)
	INSERT INTO postlane.outbox_published (seq, claimed_at, published_at, attempts, queue, id, claimant)
	SELECT seq, now() - interval '1 second', now(), 1, queue, id, 'relay' FROM numbered WHERE seq > $1::int AND part = 2`

// What is asked of a large backlog meets as many rows as it answers with, or so; and
// no table is read whole.
func TestPlansOverALargeBacklog(t *testing.T) {
	t.Parallel()
	const n = outbox.MaxCounted + 20_000
	is := is.New(t)
	pool, log := plans.New(t)
	for _, table := range []string{"messages", "pending", "scheduled", "parked", "published", "leases", "holds"} {
		_, err := pool.Exec(t.Context(), "ALTER TABLE postlane.outbox_"+table+" SET (autovacuum_enabled = off)")
		is.NoErr(err)
	}
	_, err := pool.Exec(t.Context(), loadStates, n)
	is.NoErr(err)
	now := time.Now()
	store, err := outbox.NewPostgres(pool, outbox.StoreConfig{Now: func() time.Time { return now }})
	is.NoErr(err)

	const page = 50
	// The tables that hold as many rows as there are queues in flight, or fewer.
	small := map[string]bool{"outbox_leases": true, "outbox_holds": true}
	cheap := func(what string, most int, seen []plans.Plan, names ...string) {
		t.Helper()
		plans.Cheap(t, what, most, func(p *plans.Plan, n *plans.Node) bool {
			return small[n.Relation] || p.Name() == "OutboxBacklog" // which stops at MaxCounted
		}, seen, names...)
	}
	for _, what := range []string{"never analyzed", "analyzed"} {
		// Six times and more, after which a prepared statement has its generic plan.
		for range 7 {
			for _, state := range []outbox.State{outbox.StatePending, outbox.StateScheduled, outbox.StateParked, outbox.StatePublished} {
				seen := log.During(func() {
					request := outbox.ListRequest{State: state, Max: page}
					for range 2 {
						list, err := store.List(t.Context(), request)
						is.NoErr(err)
						is.Equal(len(list), page)
						request.After = list[page-1].Cursor
					}
				})
				cheap(what+", "+string(state), page, seen, "MessageList")
			}
			seen := log.During(func() {
				list, err := store.List(t.Context(), outbox.ListRequest{State: outbox.StatePending, Queue: "q7", Max: page})
				is.NoErr(err)
				is.Equal(list[0].Queue, "q7")
			})
			cheap(what+", a queue", page, seen, "MessageList")
			seen = log.During(func() {
				b, err := store.Pending(t.Context())
				is.NoErr(err)
				is.Equal(b.Pending, int64(outbox.MaxCounted))
				is.True(b.OldestAge > 59*time.Minute)
			})
			cheap(what, outbox.MaxCounted, seen, "OutboxBacklog")

			seen = log.During(func() {
				claims, err := store.Claim(t.Context(), page)
				is.NoErr(err)
				is.Equal(len(claims), page)
				is.NoErr(store.Renew(t.Context(), claims...))
				is.NoErr(store.Release(t.Context(), claims...))
				claims, err = store.Claim(t.Context(), page)
				is.NoErr(err)
				is.NoErr(store.Fail(t.Context(), outbox.Failure{Claim: claims[0], Delay: time.Minute}, outbox.Failure{Claim: claims[1], Park: true}))
				is.NoErr(store.MarkPublished(t.Context(), claims[2:]...))
				now = now.Add(2 * time.Minute)
				_, err = store.Claim(t.Context(), page)
				is.NoErr(err)
				now = now.Add(2 * time.Minute)
				_, err = store.Claim(t.Context(), page)
				is.NoErr(err)
				_, err = store.RetryParked(t.Context(), "", 10)
				is.NoErr(err)
				_, err = store.Prune(t.Context(), time.Hour, 10)
				is.NoErr(err)
			})
			cheap(what, 20*page, seen, "MessageClaim", "QueueRenew", "QueueSettle", "MessageFail", "MessagePublish", "MessageDue",
				"QueueDue", "QueueResume", "QueueReclaim", "MessageRetry", "MessageParkedIDs", "MessagePrune")
		}
		_, err := pool.Exec(t.Context(), "ANALYZE")
		is.NoErr(err)
		pool.Reset()
	}
}

// The walk from queue to queue keeps to the index of what is ready, whatever the table
// was like when the statement was planned: what waits out of its way is not met.
func TestTheWalkMeetsOnlyWhatIsReady(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pool, log := plans.New(t)
	store, err := outbox.NewPostgres(pool, outbox.StoreConfig{})
	is.NoErr(err)
	total := 0
	load := func(n int) {
		_, err := pool.Exec(t.Context(), `
			WITH staged AS (
				INSERT INTO postlane.outbox_messages (seq, max_attempts, id, queue, topic, payload)
				SELECT g, 20, 'm' || g, 'q' || g % 100, 't', '' FROM generate_series($1::int + 1, $1::int + $2::int) g
				RETURNING seq, id, queue
			)
			INSERT INTO postlane.outbox_pending (seq, since, size, queue, id) SELECT seq, now(), 0, queue, id FROM staged`, total, n)
		is.NoErr(err)
		total += n
	}
	walk := func(what string) {
		t.Helper()
		seen := log.During(func() {
			claims, err := store.Claim(t.Context(), 10)
			is.NoErr(err)
			is.NoErr(store.Release(t.Context(), claims...))
		})
		met := 0
		for _, p := range seen {
			if p.Name() != "MessageClaim" {
				continue
			}
			for _, n := range p.Root.All() {
				if n.Relation == "outbox_pending" && strings.Contains(n.Cond, "> ") && !strings.Contains(n.Cond, ">= ") {
					met += n.Met()
					if n.Index != "outbox_pending_visible" {
						t.Errorf("%s: the walk is by %v", what, n)
					}
				}
			}
		}
		if met > 20 {
			t.Errorf("%s: the walk met %d rows", what, met)
		}
	}
	for range 2 {
		pool.Reset() // plans are made anew
		walk(fmt.Sprintf("of %d", total))
		load(200)
		pool.Reset()
		walk(fmt.Sprintf("of %d", total))
		load(20_000) // and kept while the backlog grows
		walk(fmt.Sprintf("of %d", total))
		_, err := pool.Exec(t.Context(), "UPDATE postlane.outbox_pending SET ready = false WHERE queue <> 'q7'")
		is.NoErr(err)
		walk("of one queue that is ready")
	}
}
