package outboxtest

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/postlane-go/postlane/outbox"
)

func leaseEnds(s *suite) {
	b := s.open("b")
	s.stage("q", "m", "n")
	s.expect(s.a, 10, "m", "n")
	s.pass(lease - time.Millisecond)
	s.expect(b, 10)
	s.pass(time.Millisecond)
	s.expect(b, 10, "m", "n")
}

func renewedLeaseLasts(s *suite) {
	b := s.open("b")
	s.stage("q", "m", "n")
	claims := s.expect(s.a, 10, "m", "n")
	for range 3 {
		s.pass(lease - time.Millisecond)
		s.is.NoErr(s.a.Renew(s.Context(), claims[1]))
		s.expect(b, 10)
	}
	s.pass(lease)
	// Expired, but nobody has taken it: it can still be kept.
	s.is.NoErr(s.a.Renew(s.Context(), claims...))
	s.expect(b, 10)
	s.published(s.a, claims...)
}

func stalledClaimantChangesNothing(s *suite) {
	b := s.open("b")
	s.stage("q", "m", "n")
	stale := s.expect(s.a, 10, "m", "n")
	s.pass(lease)
	fresh := s.expect(b, 10, "m", "n")
	s.is.True(fresh[0].Fence > stale[0].Fence)

	s.lost(s.a.Renew(s.Context(), stale...), stale...)
	s.lost(s.a.MarkPublished(s.Context(), stale...), stale...)
	s.lost(s.a.Fail(s.Context(), outbox.Failure{Claim: stale[0], Error: "late", Delay: time.Hour}), stale[0])
	s.lost(s.a.Fail(s.Context(), outbox.Failure{Claim: stale[0], Error: "late", Park: true}), stale[0])
	s.lost(s.a.Release(s.Context(), stale...), stale...)

	s.expect(s.a, 10) // still b's
	s.is.Equal(s.pending(), outbox.Backlog{Pending: 2, OldestAge: lease})
	s.is.NoErr(b.Renew(s.Context(), fresh...))
	s.published(b, fresh...)
	s.is.Equal(s.pending(), outbox.Backlog{})
}

func settledTwiceIsLost(s *suite) {
	s.stage("q", "m", "n", "o")
	claims := s.expect(s.a, 3, "m", "n", "o")
	s.published(s.a, claims[0])
	s.lost(s.a.MarkPublished(s.Context(), claims[0]), claims[0])
	s.lost(s.a.Renew(s.Context(), claims[0]), claims[0])
	s.is.NoErr(s.a.Release(s.Context(), claims[2]))
	s.lost(s.a.MarkPublished(s.Context(), claims[2]), claims[2])
	s.published(s.a, claims[1])
	s.lost(s.a.Release(s.Context(), claims[1]), claims[1])
	s.expect(s.a, 3, "o")
}

func othersOfTheCallAreWritten(s *suite) {
	s.stage("q", "m")
	s.stage("r", "n")
	claims := s.expect(s.a, 2, "m", "n")
	s.is.NoErr(s.a.Release(s.Context(), claims[0]))
	s.lost(s.a.MarkPublished(s.Context(), claims...), claims[0])
	s.expect(s.a, 2, "m")
}

func foreignFenceIsLost(s *suite) {
	s.stage("q", "m")
	claim := s.expect(s.a, 1, "m")[0]
	for _, fence := range []int64{claim.Fence - 1, claim.Fence + 1, 0} {
		wrong := claim
		wrong.Fence = fence
		s.lost(s.a.MarkPublished(s.Context(), wrong), wrong)
		s.lost(s.a.Renew(s.Context(), wrong), wrong)
		s.lost(s.a.Release(s.Context(), wrong), wrong)
		s.lost(s.a.Fail(s.Context(), outbox.Failure{Claim: wrong}), wrong)
	}
	s.published(s.a, claim)
}

// A claim is for its messages, not for its queue: what was staged later, or was
// committed between them, is not in it.
func partOfABatchIsSettled(s *suite) {
	s.stage("q", "m")
	late := s.begin()
	s.stageIn(late, "q", "between")
	s.stage("q", "n", "o")
	claims := s.expect(s.a, 3, "m", "n", "o")
	s.commit(late)

	s.published(s.a, claims[0])
	s.expect(s.a, 10) // n and o are still held
	intruder := claims[0]
	intruder.ID, intruder.Seq = "between", claims[0].Seq+1
	s.lost(s.a.MarkPublished(s.Context(), intruder), intruder)
	s.lost(s.a.Fail(s.Context(), outbox.Failure{Claim: intruder, Error: "not mine", Park: true}), intruder)
	s.lost(s.a.Renew(s.Context(), intruder), intruder)
	s.lost(s.a.Release(s.Context(), intruder), intruder)
	s.is.NoErr(s.a.Release(s.Context(), claims[1:]...))
	s.expect(s.a, 10, "between", "n", "o")
}

func releaseChargesNothing(s *suite) {
	s.stage("q", "m", "n")
	for range 3 {
		claims := s.expect(s.a, 10, "m", "n")
		s.is.Equal([]int{claims[0].Attempt, claims[1].Attempt}, []int{1, 1})
		s.is.NoErr(s.a.Release(s.Context(), claims...))
	}
}

func failedHeadHoldsItsQueue(s *suite) {
	s.stage("q", "m", "n")
	claims := s.expect(s.a, 2, "m", "n")
	s.stage("r", "other")
	s.is.NoErr(s.a.Fail(s.Context(), outbox.Failure{Claim: claims[0], Error: "refused", Delay: time.Second}))
	s.is.NoErr(s.a.Release(s.Context(), claims[1]))
	s.stage("q", "o")
	s.is.Equal(s.pending().Waiting, int64(1))
	s.expect(s.a, 10, "other") // n may not pass m
	s.pass(time.Second - time.Millisecond)
	s.expect(s.a, 10)
	s.pass(time.Millisecond)
	claims = s.expect(s.a, 10, "m", "n", "o")
	s.is.Equal([]int{claims[0].Attempt, claims[1].Attempt}, []int{2, 1})
	s.is.Equal(s.pending().Waiting, int64(0))
}

// What stood behind a failed message, and what came meanwhile, is found again
// after it, in as many claims as it takes.
func failedQueueGoesOnInOrder(s *suite) {
	const queues = 40 // enough for a store that keeps waiting queues out of its way
	for q := range queues {
		s.stage("q"+string(rune('A'+q)), "m"+string(rune('A'+q)), "n"+string(rune('A'+q)))
	}
	for round := range 2 {
		for _, c := range s.claim(s.a, 1000) {
			switch c.ID[0] {
			case 'm':
				s.is.Equal(c.Attempt, round+1)
				s.is.NoErr(s.a.Fail(s.Context(), outbox.Failure{Claim: c, Delay: time.Second}))
			default:
				s.is.NoErr(s.a.Release(s.Context(), c))
			}
		}
		for range 3 {
			s.expect(s.a, 1000)
		}
		for q := range queues {
			s.stage("q"+string(rune('A'+q)), string(rune('o'+round))+string(rune('A'+q)))
		}
		s.expect(s.a, 1000)
		s.pass(time.Second)
	}
	got := map[string]string{}
	for range 4 * queues { // one message each is the least
		claims := s.claim(s.a, 7)
		for _, c := range claims {
			got[c.Queue] += c.ID[:1]
		}
		s.published(s.a, claims...)
	}
	s.is.Equal(len(got), queues)
	for queue, order := range got {
		if order != "mnop" {
			s.Errorf("queue %s was published as %s", queue, order)
		}
	}
}

func stalledHeadIsCharged(s *suite) {
	s.stage("q", "m", "n", "o")
	claims := s.expect(s.a, 10, "m", "n", "o")
	s.published(s.a, claims[0]) // n is next, and may have been sent
	s.pass(lease)
	claims = s.expect(s.a, 10, "n", "o")
	s.is.Equal([]int{claims[0].Attempt, claims[1].Attempt}, []int{2, 1})
}

func parkedMessageLetsItsQueueGoOn(s *suite) {
	s.stage("q", "m", "n")
	claims := s.expect(s.a, 10, "m", "n")
	s.is.NoErr(s.a.Fail(s.Context(), outbox.Failure{Claim: claims[0], Error: "never\x00\xff", Park: true}))
	s.published(s.a, claims[1]) // still held
	s.stage("q", "o")
	s.expect(s.a, 10, "o")
	s.is.Equal(s.pending(), outbox.Backlog{Pending: 1, Parked: 1})
}

// retrier is what stores give to operators.
type retrier interface {
	Retry(ctx context.Context, ids ...string) ([]string, error)
}

func (s *suite) retry(ids ...string) []string {
	s.Helper()
	r, ok := s.a.(retrier)
	if !ok {
		s.Skip("the store has no Retry")
	}
	retried, err := r.Retry(s.Context(), ids...)
	s.is.NoErr(err)
	return retried
}

func retryReturnsTheParked(s *suite) {
	s.stage("q", "m", "n")
	claims := s.expect(s.a, 10, "m", "n")
	s.is.NoErr(s.a.Fail(s.Context(), outbox.Failure{Claim: claims[0], Error: "never", Park: true}))
	s.is.NoErr(s.a.Release(s.Context(), claims[1]))
	s.is.Equal(s.retry("m", "n", "unheard of"), []string{"m"})
	s.is.Equal(len(s.retry("m")), 0) // safe to repeat
	claims = s.expect(s.a, 10, "m", "n")
	s.is.Equal(claims[0].Attempt, 1)
}

func retryEndsAWait(s *suite) {
	s.stage("q", "m", "n")
	claims := s.expect(s.a, 10, "m", "n")
	s.is.NoErr(s.a.Fail(s.Context(), outbox.Failure{Claim: claims[0], Error: "later", Delay: time.Hour}))
	s.is.NoErr(s.a.Release(s.Context(), claims[1]))
	s.is.Equal(len(s.retry("n")), 0) // it waits for m, not for a time
	s.expect(s.a, 10)
	s.is.Equal(s.retry("m"), []string{"m"})
	claims = s.expect(s.a, 10, "m", "n")
	s.is.Equal(claims[0].Attempt, 2)
}

func runAtHoldsUpNobody(s *suite) {
	at := s.clock().Add(time.Minute)
	s.stageMessages(
		outbox.Message{ID: "later", Topic: "t", RunAt: at},
		outbox.Message{ID: "past", Topic: "t", RunAt: s.clock().Add(-time.Hour)},
		outbox.Message{ID: "now", Topic: "t"})
	s.is.Equal(s.pending(), outbox.Backlog{Pending: 2, Scheduled: 1})
	s.published(s.a, s.expect(s.a, 10, "past", "now")...)
	s.pass(time.Minute - time.Millisecond)
	s.expect(s.a, 10)
	s.pass(time.Millisecond)
	s.stage("", "newer")
	claims := s.expect(s.a, 10, "later", "newer") // in its place among those that wait
	s.is.True(!claims[0].ClaimedAt.Before(at))
}

func publishedCostsNothing(s *suite) {
	s.stage("q", numbered("m", 200)...)
	for range 200 / 50 {
		s.published(s.a, s.claim(s.a, 50)...)
	}
	s.is.Equal(s.pending(), outbox.Backlog{})
	if r, ok := s.a.(interface{ Retained() int }); ok {
		s.is.Equal(r.Retained(), 0)
	}
}

func pendingCountsTheBacklog(s *suite) {
	s.is.Equal(s.pending(), outbox.Backlog{})
	s.stage("q", "m")
	s.pass(3 * time.Second)
	s.stage("r", "n")
	s.pass(time.Second)
	s.is.Equal(s.pending(), outbox.Backlog{Pending: 2, OldestAge: 4 * time.Second})
	s.published(s.a, s.expect(s.a, 1, "m")...)
	s.expect(s.a, 1, "n") // being published is pending
	s.is.Equal(s.pending(), outbox.Backlog{Pending: 1, OldestAge: time.Second})
}

func leaseIsNormalized(s *suite) {
	for _, wrong := range []time.Duration{
		0, -1, -time.Second, 1, time.Microsecond, time.Millisecond - 1, 1500 * time.Microsecond, outbox.MaxLease + time.Millisecond,
		math.MaxInt64, math.MinInt64,
	} {
		_, err := outbox.NormalizeLease(&wrong)
		s.is.True(errors.Is(err, outbox.ErrLease))
		_, err = outbox.NewMemory(outbox.StoreConfig{Lease: &wrong})
		s.is.True(errors.Is(err, outbox.ErrLease))
	}
	s.is.Equal(s.a.Lease(), lease)
}

func claimantIsUnique(s *suite) {
	s.is.Equal(s.a.Claimant(), "a")
	names := map[string]bool{}
	for range 3 {
		store := s.bed.Open(outbox.StoreConfig{})
		if store == nil {
			s.Skip("the bed has one store")
		}
		names[store.Claimant()] = true
		s.is.Equal(store.Lease(), outbox.DefaultLease)
	}
	s.is.Equal(len(names), 3)
}
