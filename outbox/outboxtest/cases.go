package outboxtest

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/postlane-go/postlane/outbox"
)

var cases = []struct {
	name string
	run  func(*suite)
}{
	{"StagedMessageComesBackWhole", stagedMessageComesBackWhole},
	{"DefaultsAreFilledIn", defaultsAreFilledIn},
	{"TraceparentIsThatOfStaging", traceparentIsThatOfStaging},
	{"InvalidMessageLeavesTheTransactionAlone", invalidMessageLeavesTheTransactionAlone},
	{"SameIDOrKeyIsStagedOnce", sameIDOrKeyIsStagedOnce},
	{"BC13_RollbackForgets", rollbackForgets},
	{"BC13_SavepointForgets", savepointForgets},
	{"BC12_LateCommitIsClaimed", lateCommitIsClaimed},
	{"OrderIsThatOfStaging", orderIsThatOfStaging},
	{"OrderWithinATransactionIsExact", orderWithinATransactionIsExact},
	{"LimitIsKept", limitIsKept},
	{"QueuesTakeTurns", queuesTakeTurns},
	{"HeadOfLineIsHeld", headOfLineIsHeld},
	{"ClaimsNeverOverlap", claimsNeverOverlap},
	{"FenceRises", fenceRises},
	{"LeaseEnds", leaseEnds},
	{"RenewedLeaseLasts", renewedLeaseLasts},
	{"StalledClaimantChangesNothing", stalledClaimantChangesNothing},
	{"SettledTwiceIsLost", settledTwiceIsLost},
	{"OthersOfTheCallAreWritten", othersOfTheCallAreWritten},
	{"ForeignFenceIsLost", foreignFenceIsLost},
	{"PartOfABatchIsSettled", partOfABatchIsSettled},
	{"ReleaseChargesNothing", releaseChargesNothing},
	{"FailedHeadHoldsItsQueue", failedHeadHoldsItsQueue},
	{"FailedQueueGoesOnInOrder", failedQueueGoesOnInOrder},
	{"StalledHeadIsCharged", stalledHeadIsCharged},
	{"ParkedMessageLetsItsQueueGoOn", parkedMessageLetsItsQueueGoOn},
	{"RetryReturnsTheParked", retryReturnsTheParked},
	{"RetryEndsAWait", retryEndsAWait},
	{"RunAtHoldsUpNobody", runAtHoldsUpNobody},
	{"PublishedCostsNothing", publishedCostsNothing},
	{"PendingCountsTheBacklog", pendingCountsTheBacklog},
	{"LeaseIsNormalized", leaseIsNormalized},
	{"ClaimantIsUnique", claimantIsUnique},
}

func stagedMessageComesBackWhole(s *suite) {
	m := outbox.Message{
		ID: "whole", Topic: "order.paid", Queue: "orders-7", Payload: []byte("{\"note\":\"a\\u0000b\"}\x00\xff\xd8"),
		Headers: map[string]string{"content-type": "application/json", "zeile": "Ümläut\n\"x\""}, IdempotencyKey: "k", MaxAttempts: 3,
		Tenant: "acme", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", EnqueuedBy: "checkout",
	}
	s.stageMessages(m)
	c := s.expect(s.a, 10, "whole")[0]
	s.is.Equal(c.Payload, m.Payload)
	s.is.True(maps.Equal(c.Headers, m.Headers))
	s.is.True(c.StagedAt.Equal(s.clock()))
	s.is.Equal([]string{c.Topic, c.Queue, c.IdempotencyKey, c.Tenant, c.Traceparent, c.EnqueuedBy},
		[]string{m.Topic, m.Queue, m.IdempotencyKey, m.Tenant, m.Traceparent, m.EnqueuedBy})
	s.is.Equal(c.MaxAttempts, 3)
	s.is.Equal(c.Attempt, 1)
	s.is.True(c.ClaimedAt.Equal(s.clock()))
}

func defaultsAreFilledIn(s *suite) {
	staged := s.stageMessages(outbox.Message{Topic: "t"}, outbox.Message{Topic: "t"})
	claims := s.claim(s.a, 10)
	s.is.Equal(idsOf(claims), []string{staged[0].ID, staged[1].ID})
	s.is.True(claims[0].ID != claims[1].ID && claims[0].ID != "")
	s.is.Equal(claims[0].Queue, outbox.DefaultQueue)
	s.is.Equal(claims[0].MaxAttempts, outbox.DefaultMaxAttempts)
	s.is.Equal(len(claims[0].Payload), 0)
	s.is.Equal(len(claims[0].Headers), 0)
	s.is.Equal(claims[0].Traceparent, "") // absent, not zeros
}

func traceparentIsThatOfStaging(s *suite) {
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	tx := s.begin()
	_, err := s.a.Stage(trace.ContextWithSpanContext(s.Context(), span), tx, outbox.Message{ID: "traced", Topic: "t"})
	s.is.NoErr(err)
	_, err = s.a.Stage(trace.ContextWithSpanContext(s.Context(), trace.SpanContext{}), tx, outbox.Message{ID: "zeros", Topic: "t"})
	s.is.NoErr(err)
	s.commit(tx)
	claims := s.expect(s.a, 10, "traced", "zeros")
	s.is.Equal(claims[0].Traceparent, "00-01000000000000000000000000000000-0200000000000000-01")
	s.is.Equal(claims[1].Traceparent, "")
}

func invalidMessageLeavesTheTransactionAlone(s *suite) {
	tx := s.begin()
	for _, m := range []outbox.Message{
		{},
		{Topic: "nul\x00"},
		{Topic: "t", Queue: "\xff"},
		{Topic: "t", Headers: map[string]string{"a": "b\x00"}},
		{Topic: "t", MaxAttempts: -1},
		{Topic: "t", Payload: make([]byte, outbox.MaxPayload+1)},
		{Topic: "t", RunAt: time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		_, err := s.a.Stage(s.Context(), tx, outbox.Message{ID: "good", Topic: "t"}, m)
		s.is.True(errors.Is(err, outbox.ErrInvalid))
		invalid := (*outbox.InvalidError)(nil)
		s.is.True(errors.As(err, &invalid))
		s.is.Equal(invalid.Index, 1)
	}
	s.stageIn(tx, "q", "kept")
	s.commit(tx)
	s.expect(s.a, 10, "kept")
	_, err := s.a.Stage(s.Context(), nil, outbox.Message{Topic: "t"})
	s.is.True(errors.Is(err, outbox.ErrNoTx))
}

func sameIDOrKeyIsStagedOnce(s *suite) {
	one := outbox.Message{ID: "one", Topic: "t", Tenant: "acme", IdempotencyKey: "k"}
	other := outbox.Message{ID: "other", Topic: "t", Tenant: "globex", IdempotencyKey: "k"} // another tenant's
	again := outbox.Message{ID: "again", Topic: "t", Tenant: "acme", IdempotencyKey: "k"}
	staged := s.stageMessages(one, other, again, one)
	s.is.Equal([]bool{staged[0].Duplicate, staged[1].Duplicate, staged[2].Duplicate, staged[3].Duplicate}, []bool{false, false, true, true})
	staged = s.stageMessages(again, one)
	s.is.True(staged[0].Duplicate && staged[1].Duplicate)
	s.is.Equal(staged[0].Seq, int64(0))
	s.expect(s.a, 10, "one", "other")
}

func rollbackForgets(s *suite) {
	tx := s.begin()
	s.stageIn(tx, "q", "gone")
	s.expect(s.a, 10) // nor before the end
	s.is.NoErr(tx.Rollback(s.Context()))
	s.stage("q", "kept")
	s.expect(s.a, 10, "kept")
}

func savepointForgets(s *suite) {
	tx := s.begin()
	s.stageIn(tx, "q", "before")
	point, err := tx.Begin(s.Context())
	s.is.NoErr(err)
	s.stageIn(point, "q", "gone")
	s.is.NoErr(point.Rollback(s.Context()))
	point, err = tx.Begin(s.Context())
	s.is.NoErr(err)
	s.stageIn(point, "q", "inner")
	s.is.NoErr(point.Commit(s.Context()))
	s.stageIn(tx, "q", "after")
	s.expect(s.a, 10) // none before the commit
	s.commit(tx)
	s.expect(s.a, 10, "before", "inner", "after")
}

func lateCommitIsClaimed(s *suite) {
	early, undone, unrelated := s.begin(), s.begin(), s.begin()
	s.stageIn(early, "q", "low") // takes the lower number
	s.stageIn(undone, "q", "undone")
	s.stageIn(unrelated, "elsewhere", "unrelated") // stays open for the whole case
	s.stage("q", "high")
	s.published(s.a, s.expect(s.a, 10, "high")...)
	s.is.NoErr(undone.Rollback(s.Context()))
	s.commit(early)
	s.stage("q", "higher")
	s.published(s.a, s.expect(s.a, 10, "low", "higher")...)
	s.expect(s.a, 10)
}

func orderIsThatOfStaging(s *suite) {
	ids := numbered("m", 25)
	for _, id := range ids {
		s.stage("q", id)
	}
	for chunk := range slices.Chunk(ids, 10) {
		claims := s.expect(s.a, 10, chunk...)
		s.is.True(slices.IsSortedFunc(claims, func(x, y outbox.Claim) int { return cmp.Compare(x.Seq, y.Seq) }))
		s.published(s.a, claims...)
	}
}

func orderWithinATransactionIsExact(s *suite) {
	tx := s.begin()
	// In neither the order of the ids nor its reverse.
	s.stageIn(tx, "q", "m", "z", "a")
	s.stageIn(tx, "q", "y")
	s.stageIn(tx, "q", "b", "x")
	s.commit(tx)
	s.expect(s.a, 10, "m", "z", "a", "y", "b", "x")
}

func limitIsKept(s *suite) {
	for i := range 5 {
		s.stage("q"+string(rune('0'+i)), numbered("q"+string(rune('0'+i))+"-", 3)...)
	}
	s.is.Equal(len(s.claim(s.a, 4)), 4)
	s.is.Equal(len(s.claim(s.a, 1)), 1)
	s.is.Equal(len(s.claim(s.a, 4)), 0) // all queues are held
	s.is.Equal(s.pending().Pending, int64(15))
	_, err := s.a.Claim(s.Context(), 0)
	s.is.True(err != nil)
}

func queuesTakeTurns(s *suite) {
	s.stage("a", numbered("a", 6)...)
	s.stage("b", numbered("b", 2)...)
	s.stage("c", numbered("c", 2)...)
	for _, ids := range [][]string{{"a0", "b0"}, {"c0", "a1"}, {"b1", "c1"}, {"a2", "a3"}, {"a4", "a5"}} {
		s.published(s.a, s.expect(s.a, 2, ids...)...)
	}
}

func headOfLineIsHeld(s *suite) {
	b := s.open("b")
	s.stage("q", "q0", "q1", "q2")
	s.stage("r", "r0")
	held := s.expect(s.a, 1, "q0")
	s.expect(b, 10, "r0") // not q1, though nobody has it
	s.published(s.a, held...)
	s.expect(b, 10, "q1", "q2")
}

func claimsNeverOverlap(s *suite) {
	stores := []outbox.Store{s.a, s.open("b"), s.open("c"), s.open("d")}
	const queues, depth = 7, 30
	for q := range queues {
		s.stage("q"+string(rune('0'+q)), numbered("q"+string(rune('0'+q))+"-", depth)...)
	}
	var mu sync.Mutex
	seen := map[string][]int64{} // by queue, in the order of publishing
	var workers sync.WaitGroup
	for _, store := range stores {
		workers.Go(func() {
			for range 3 * queues * depth { // far more than it takes
				claims, err := store.Claim(s.Context(), 5)
				if err != nil {
					s.Error(err)
					return
				}
				mu.Lock()
				total := 0
				for _, c := range claims {
					seen[c.Queue] = append(seen[c.Queue], c.Seq)
				}
				for _, seqs := range seen {
					total += len(seqs)
				}
				mu.Unlock()
				if err := store.MarkPublished(s.Context(), claims...); err != nil {
					s.Error(err)
					return
				}
				if total >= queues*depth {
					return
				}
			}
		})
	}
	workers.Wait()
	for queue, seqs := range seen {
		if len(seqs) != depth || !slices.IsSorted(seqs) {
			s.Errorf("queue %s was claimed as %v", queue, seqs)
		}
	}
	s.is.Equal(s.pending().Pending, int64(0))
}

func fenceRises(s *suite) {
	s.stage("q", "m")
	last := int64(0)
	for range 5 {
		claims := s.expect(s.a, 1, "m")
		s.is.True(claims[0].Fence > last)
		last = claims[0].Fence
		s.is.NoErr(s.a.Release(s.Context(), claims...))
	}
}
