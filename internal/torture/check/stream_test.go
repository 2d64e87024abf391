package check_test

import (
	"testing"

	"github.com/postlane-go/postlane/internal/torture/check"
	"github.com/postlane-go/postlane/internal/torture/journal"
)

func TestOutOfOrderWithinATransaction(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a, b, other := event("a", "x"), event("b", "x"), event("other", "y")
	s.commits("1", 10, 20, a, other, b)
	s.arrives(b, "w1", 30, 40, 200)
	s.arrives(other, "w1", 45, 48, 200)
	s.arrives(a, "w1", 50, 60, 200)
	s.judged(map[string]int{"out_of_order": 1})
}

func TestOutOfOrderAcrossTransactions(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a, b := event("a", ""), event("b", "")
	s.commits("1", 10, 20, a)
	s.commits("2", 21, 30, b)
	s.arrives(b, "w1", 40, 50, 200)
	s.arrives(a, "w1", 60, 70, 200)
	s.judged(map[string]int{"out_of_order": 1})
}

func TestConcurrentTransactionsHaveNoOrder(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a, b := event("a", "x"), event("b", "x")
	s.commits("1", 10, 25, a)
	s.commits("2", 21, 30, b)
	s.arrives(b, "w1", 40, 50, 200)
	s.arrives(a, "w1", 60, 70, 200)
	s.judged(map[string]int{})
}

func TestTransactionsUnderALockHaveAnOrder(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a, b := event("a", "x"), event("b", "x")
	a.Version, b.Version = 1, 2
	s.commits("1", 10, 25, a)
	s.commits("2", 11, 30, b)
	s.arrives(b, "w1", 40, 50, 200)
	s.arrives(a, "w1", 60, 70, 200)
	s.judged(map[string]int{"out_of_order": 1})
}

func TestOutOfOrderBeforeTheEarlierIsSettled(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a, b := event("a", "x"), event("b", "x")
	s.commits("1", 10, 20, a, b)
	s.arrives(a, "w1", 30, 40, 500)
	s.arrives(b, "w1", 50, 60, 200) // a waits for its next attempt
	s.arrives(a, "w1", 70, 80, 200)
	s.judged(map[string]int{"out_of_order": 1, "retries": 1})
}

func TestADeadLetterLetsItsStreamGoOn(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a, b, c := event("a", "x"), event("b", "x"), event("c", "x")
	s.commits("1", 10, 20, a, b, c)
	s.arrives(a, "w1", 30, 40, 500)
	s.arrives(c, "w1", 50, 60, 200)
	s.state(a, journal.Dead)
	s.state(b, journal.Dead) // while its receiver was away
	s.judged(map[string]int{"dead": 2})
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a, b, other := event("a", "x"), event("b", "x"), event("other", "y")
	s.commits("1", 10, 20, a)
	s.commits("2", 15, 20, b)
	s.commits("3", 15, 20, other)
	s.arrives(a, "w1", 30, 60, 200)
	s.arrives(other, "w2", 35, 40, 200)
	s.arrives(b, "w2", 50, 70, 200)
	s.judged(map[string]int{"overlaps": 1})
}

func TestOverlapThatASenderLeft(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a, b := event("a", "x"), event("b", "x")
	s.commits("1", 10, 20, a)
	s.commits("2", 15, 20, b)
	s.arrival(a, "w1", 1000, journal.End{At: at(1500), How: journal.Left}, nil)
	s.arrives(a, "w1", 1400, 1410, 200) // that it left was seen a little late
	s.arrival(b, "w1", 2000, journal.End{At: at(2500), How: journal.Left}, nil)
	s.arrives(b, "w1", 2200, 2210, 200) // it was open
	s.judged(map[string]int{"overlaps": 1, "retries": 2})
}

func TestOverlapOfAFrozenProcess(t *testing.T) {
	t.Parallel()
	explained, overlap := map[string]int{"explained_overlaps": 1, "retries": 1}, map[string]int{"overlaps": 1, "retries": 1}
	for name, c := range map[string]struct {
		kind, target string
		began, ended int64
		want         map[string]int
	}{
		"frozen":            {check.Freeze, "w1", 10_050, 20_000, explained},
		"too short":         {check.Freeze, "w1", 13_500, 13_600, overlap},
		"another":           {check.Freeze, "w3", 10_050, 20_000, overlap},
		"later":             {check.Freeze, "w1", 15_500, 20_000, overlap},
		"its successor":     {check.Freeze, "w2", 10_050, 14_900, explained},
		"cut off":           {check.Blackhole, "w1", 9_000, 14_500, overlap}, // a process that runs gives up in time
		"of no consequence": {check.ClockShift, "w1", 10_050, 20_000, overlap},
		"the database":      {check.PostgresCrash, "", 10_050, 14_000, overlap},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tell(t)
			a := event("a", "x")
			s.commits("1", 10, 20, a)
			s.arrival(a, "w1", 10_000, journal.End{At: at(20_001), How: journal.Left}, nil)
			s.arrives(a, "w2", 15_000, 15_010, 200)
			s.fault(c.kind, c.target, c.began, c.ended)
			s.judged(c.want)
		})
	}
}

func TestNoLeaseRunsOutAtOnce(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a := event("a", "x")
	s.commits("1", 10, 20, a)
	s.arrival(a, "w1", 10_000, journal.End{At: at(20_001), How: journal.Left}, nil)
	s.arrives(a, "w2", 12_500, 12_510, 200) // the lease is of 4 s
	s.fault(check.Freeze, "w1", 10_050, 20_000)
	s.judged(map[string]int{"overlaps": 1, "retries": 1})
}

func TestRequestsOfAKilledReceiverEndWithIt(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a := event("a", "x")
	s.commits("1", 10, 20, a)
	s.arrival(a, "w1", 100, journal.End{}, nil)
	s.fault(check.ReceiverAway, "other", 120, 130)
	s.fault(check.ReceiverAway, "r", 150, 180)
	s.arrives(a, "w1", 140, 145, 500) // it was still open
	s.arrives(a, "w1", 200, 210, 200)
	s.judged(map[string]int{"overlaps": 1, "retries": 2})
}

func TestAnAnswerThatItsReceiverDidNotSurvive(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a, b := event("a", "x"), event("b", "x")
	s.commits("1", 10, 20, a, b)
	s.arrival(a, "w1", 100, journal.End{At: at(101), Status: 200, How: journal.Begun}, nil)
	s.fault(check.ReceiverAway, "r", 150, 180)
	s.state(a, journal.Delivered)
	s.arrives(b, "w1", 200, 210, 200)
	s.judged(map[string]int{})
}

func TestUnexplainedDuplicates(t *testing.T) {
	t.Parallel()
	const one, explained = "unexplained_duplicates", "explained_duplicates"
	for name, c := range map[string]struct {
		kind, target string
		began, ended int64
		want         string
	}{
		"for nothing":                  {check.Kill, "w1", 1, 2, one},
		"killed":                       {check.Kill, "w1", 10_020, 10_021, explained},
		"killed, but another":          {check.Kill, "w2", 10_020, 10_021, one},
		"killed, but later":            {check.Kill, "w1", 20_020, 20_021, one},
		"killed, but long before":      {check.Kill, "w1", 7_000, 7_001, one},
		"stopped cleanly":              {check.Stop, "w1", 10_020, 10_500, one},
		"the database":                 {check.PostgresRestart, "", 10_020, 10_500, explained},
		"recovering from the database": {check.Failover, "", 8_000, 9_000, explained},
		"its receiver":                 {check.ReceiverAway, "r", 10_100, 10_200, explained},
		"its receiver, later":          {check.ReceiverAway, "r", 12_000, 12_200, one},
		"another endpoint's trouble":   {check.ReceiverError, "/s", 10_020, 10_500, one},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tell(t)
			a := event("a", "x")
			s.commits("1", 10, 20, a)
			s.arrives(a, "w1", 10_000, 10_010, 200)
			s.arrives(a, "w2", 15_000, 15_010, 200)
			s.fault(c.kind, c.target, c.began, c.ended)
			s.judged(map[string]int{c.want: 1})
		})
	}
}

func TestDuplicatesOfWhatWasNotAnswered(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a := event("a", "x")
	s.commits("1", 10, 20, a)
	s.arrives(a, "w1", 1_000, 1_010, 503)
	s.arrival(a, "w1", 2_000, journal.End{At: at(2_010), How: journal.Cut}, nil)
	s.arrival(a, "w1", 3_000, journal.End{At: at(3_010), Status: 200, How: journal.Left}, nil)
	s.arrives(a, "w1", 4_000, 5_400, 200) // its sender may have left just before
	s.arrives(a, "w1", 6_000, 6_010, 200)
	s.judged(map[string]int{"retries": 3, "explained_duplicates": 1})
}

func TestWhilePaused(t *testing.T) {
	t.Parallel()
	s := tell(t)
	a, b, c, d := event("a", "a"), event("b", "b"), event("c", "c"), event("d", "d")
	s.commits("1", 10, 20, a, b, c, d)
	s.changes(journal.Pause, 10_000, 10_100)
	s.changes(journal.Enable, 20_000, 20_100)
	s.changes(journal.Delete, 30_000, 30_100)
	s.arrives(a, "w1", 10_050, 10_060, 200)
	s.arrives(b, "w1", 15_000, 15_010, 200) // no
	s.arrives(c, "w1", 20_010, 20_020, 200)
	s.arrives(d, "w2", 31_000, 31_010, 200) // no
	s.judged(map[string]int{"while_paused": 2})
}
