// Package outboxtest proves that an outbox.Store keeps its contract.
//
//	func TestStore(t *testing.T) {
//		outboxtest.Run(t, func(t *testing.T) outboxtest.Bed { … })
//	}
//
// What the cases are worth was found out by breaking the PostgreSQL store on
// purpose, one line at a time; TestEveryBreakageIsCaught does so with what can be
// broken from outside:
//
//	broken                                      caught by (among others)
//	─────────────────────────────────────────   ──────────────────────────────────────
//	fence
//	  publish, fail, release or renew ignores   StalledClaimantChangesNothing,
//	  the fence                                 ForeignFenceIsLost
//	  every claim has the same fence            FenceRises
//	  publish, fail or renew ignores which      PartOfABatchIsSettled, SettledTwiceIsLost
//	  messages the claim is for
//	  the first settled ends the whole lease    PartOfABatchIsSettled
//	order
//	  claim takes the last first                OrderIsThatOfStaging, HeadOfLineIsHeld
//	  claim answers in the order of ids         OrderWithinATransactionIsExact
//	  stage sorts by id                         OrderWithinATransactionIsExact
//	  claim remembers how far it has read       BC12_LateCommitIsClaimed, ClaimsNeverOverlap
//	  claim ignores leases of others            HeadOfLineIsHeld, ClaimsNeverOverlap
//	  claim ignores that a queue waits          FailedHeadHoldsItsQueue
//	  what stands behind is not shown again     FailedQueueGoesOnInOrder
//	  the end of a wait shows nothing           FailedQueueGoesOnInOrder
//	  every claim begins with the same queue    QueuesTakeTurns
//	  claim exceeds its limit                   LimitIsKept
//	lease
//	  it never ends, or ends early              LeaseEnds
//	  renewing does not move its end            RenewedLeaseLasts
//	attempts
//	  a failure is not charged                  FailedHeadHoldsItsQueue
//	  a lost lease is not charged, or to all    StalledHeadIsCharged
//	  a release is charged                      ReleaseChargesNothing
//	  a failure does not wait                   FailedHeadHoldsItsQueue
//	the rest
//	  a published message stays                 PublishedCostsNothing, ClaimsNeverOverlap
//	  a parked message stays in its queue       ParkedMessageLetsItsQueueGoOn
//	  a retry ends no wait, or another's        RetryEndsAWait
//	  run-at is ignored, or comes early         RunAtHoldsUpNobody
//	  an idempotency key is ignored             SameIDOrKeyIsStagedOnce
//	  a span without an id is taken             TraceparentIsThatOfStaging
//	  text is not checked                       InvalidMessageLeavesTheTransactionAlone
package outboxtest
