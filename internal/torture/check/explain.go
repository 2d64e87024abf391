package check

// The kinds of faults, as the harness writes them.
const (
	Kill             = "kill"
	Freeze           = "freeze"
	Stop             = "stop"
	ClockShift       = "clock_shift"
	PoolExhausted    = "pool_exhausted"
	Blackhole        = "db_blackhole"
	CutConnections   = "db_cut"
	Delay            = "db_delay"
	PostgresRestart  = "postgres_restart"
	PostgresCrash    = "postgres_crash"
	Failover         = "failover"
	Terminate        = "backends_terminated"
	DiskFull         = "disk_full"
	VacuumFull       = "vacuum_full"
	Reindex          = "reindex"
	ProducerKill     = "producer_kill"
	ReceiverAway     = "receiver_away"
	ReceiverHang     = "receiver_hang"
	ReceiverReset    = "receiver_reset"
	ReceiverDrip     = "receiver_drip"
	ReceiverLate     = "receiver_late"
	ReceiverError    = "receiver_error"
	ReceiverFlaky    = "receiver_flaky"
	ReceiverGone     = "receiver_gone"
	SubscriptionStop = "subscription_pause"
	SubscriptionNew  = "subscription_replace"
	SecretRotate     = "secret_rotate"
)

// forgets says which faults can make a dispatcher forget that an endpoint answered:
// its process ends, or nothing can be recorded before the lease ends. The others, such
// as a shifted clock or a clean stop, explain nothing.
var forgets = map[string]bool{
	Kill: true, Freeze: true, PoolExhausted: true, Blackhole: true, CutConnections: true, Delay: true,
	PostgresRestart: true, PostgresCrash: true, Failover: true, Terminate: true, DiskFull: true,
}

// locks are faults that lock a table for as long as they take.
var locks = map[string]bool{VacuumFull: true, Reindex: true}

const (
	second = int64(1e9)
	// aftermath is for how long after a fault its victims may still be at recovering
	// from it: connections are opened again, and what failed is tried again.
	aftermath = 2 * second
	// unflushed is for how long an answer that was written may not have left its
	// process.
	unflushed = second / 2
	// notice is how long a receiver may take to see that a sender has left.
	notice = second * 15 / 100
)

// killed returns when the receiver was killed that had a request open since the given
// time: between the beginning and the end of its fault.
func (e *evidence) killed(receiver string, since int64) int64 {
	at := int64(never)
	for _, f := range e.faults {
		if f.Kind == ReceiverAway && f.Target == receiver && f.Ended >= since {
			at = min(at, max(f.Began, since))
		}
	}
	return at
}

// forgot reports whether a fault that can be the reason met a worker between two times.
func (e *evidence) forgot(worker string, from, to int64) bool {
	for _, f := range e.faults {
		reason := forgets[f.Kind] || locks[f.Kind] && f.Ended-f.Began > second
		if !reason || f.Began > to || f.Ended+aftermath < from {
			continue
		}
		if f.Target == "" || f.Target == worker {
			return true
		}
	}
	return false
}

// explainedDuplicate reports whether there is a reason for sending an event again that
// was answered with a 2xx.
func (e *evidence) explainedDuplicate(s *subscription, first, again *request) bool {
	switch {
	case first.ended-first.At > int64(e.run.Timeout)*4/5: // its sender may have left
		return true
	case e.killed(s.Receiver, first.At) < first.ended+unflushed:
		return true
	}
	return e.forgot(first.Worker, first.At, again.At)
}

// explainedOverlap reports whether the holder of the open request was frozen until its
// lease had run out, or the sender of the next one before it got to send it. Nothing
// else lets a lease run out while a request is open: a process that runs gives a
// request up before that, whether it reaches the database or not.
func (e *evidence) explainedOverlap(open, next *request) bool {
	lease, timeout := int64(e.run.Lease), int64(e.run.Timeout)
	// A request starts no later after its claim than this.
	begin := (lease - timeout) / 2
	expired := next.At >= open.At+lease-begin-notice
	return expired && e.frozen(open.Worker, open.At, next.At) || e.frozen(next.Worker, next.At, next.At)
}

// frozen reports whether a worker was frozen between two times, and for long enough to
// lose a lease. What it does as it wakes up it does at once.
func (e *evidence) frozen(worker string, from, to int64) bool {
	for _, f := range e.faults {
		if f.Kind == Freeze && f.Target == worker && f.Began <= to && f.Ended+notice >= from && min(f.Ended, to)-f.Began >= int64(e.run.Lease)/2 {
			return true
		}
	}
	return false
}
