package delivery

import "time"

// Observer is told what a Dispatcher does. Every function may be nil. They are called
// from the dispatcher's goroutines, several at a time, and hold up what they observe:
// count, and return.
type Observer struct {
	// Claimed: a claim returned this many deliveries, after this long.
	Claimed func(deliveries int, took time.Duration)
	// Settled: an attempt's verdict was recorded, or found its lease lost.
	Settled func(Observation)
	// LeasesLost: this many deliveries were found to be another claimant's.
	LeasesLost func(deliveries int)
	// Reclaimed: this many deliveries were taken back from claimants that went
	// silent.
	Reclaimed func(deliveries int)
	// Disabled: a subscription was disabled, for this reason.
	Disabled func(id SubscriptionID, reason string)
	// Opened: a subscription's Breaker opened.
	Opened func(id SubscriptionID)
	// Closed: a Breaker that this dispatcher opened, so long ago, has closed: a request
	// succeeded, whoever's, or somebody closed it or deleted its subscription. Told within
	// Config.Reclaim, and not of what opened before this dispatcher started.
	Closed func(id SubscriptionID, after time.Duration)
	// OpenBreakers: how many are open of active subscriptions, up to 10,000, and how
	// long the longest has been; 0 if none is. Told at every Config.Reclaim.
	OpenBreakers func(n int, longest time.Duration)
	// ActiveSubscriptions: how many there are, up to 10,000. Told at every
	// Config.Reclaim.
	ActiveSubscriptions func(n int)
	// OldestDue: for how long the longest waiting delivery that could be claimed has
	// waited, as Store.OldestDue has it; negative if none waits. Told at every Config.Reclaim.
	OldestDue func(age time.Duration)
	// Orphans: this many streams waited for nothing and were woken. Anything but 0
	// is a bug of this package.
	Orphans func(streams int)
}

// Observation is an attempt that was settled.
type Observation struct {
	Subscription SubscriptionID
	EventType    string
	// Outcome is the attempt's (package sender), "" where none was made.
	Outcome string
	// Status is the answer's, 0 where there was none.
	Status   int
	Duration time.Duration
	State    Settled
}
