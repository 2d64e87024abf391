package retry_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery/retry"
)

func TestScheduleZeroValueIsTheDefault(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var s retry.Schedule
	is.Equal(s.MaxAttempts(), 8)
	for i, want := range retry.DefaultDelays {
		is.Equal(s.Delay(i+1, nil, 0), want)
	}
	is.Equal(s.Delay(8, nil, 0), 10*time.Hour) // the last entry repeats
	is.Equal(s.Delay(0, nil, 0), 5*time.Second)
}

func TestBC31_DelayNeverOverflowsOrShrinks(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	schedule, err := retry.NewSchedule(500, time.Second, 2*time.Second, 4*time.Second, time.Hour)
	is.NoErr(err)
	rng := rand.New(rand.NewPCG(1, 2))
	attempts := []int{math.MinInt, -1, 0}
	for n := 1; n <= 500; n++ {
		attempts = append(attempts, n)
	}
	attempts = append(attempts, 10_000, math.MaxInt)
	highest := time.Duration(0)
	for _, n := range attempts {
		plain := schedule.Delay(n, nil, 0)
		is.True(plain >= highest) // never shrinking without jitter
		highest = plain
		is.True(plain > 0 && plain <= time.Hour)
		for _, jitter := range []retry.Jitter{
			rng.Int64N,
			func(int64) int64 { return 0 },
			func(n int64) int64 { return n - 1 },
		} {
			varied := schedule.Delay(n, jitter, 0)
			is.True(varied >= retry.MinDelay)
			is.True(varied >= plain-plain/10-1)
			is.True(varied <= plain+plain/10)
		}
	}
}

func TestBC31_LongestDelayWithJitterIsBounded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	schedule, err := retry.NewSchedule(0, retry.MaxDelay)
	is.NoErr(err)
	top := func(n int64) int64 { return n - 1 }
	for _, after := range []time.Duration{0, 1, retry.MaxDelay, math.MaxInt64, math.MinInt64} {
		is.True(schedule.Delay(math.MaxInt, top, after) <= retry.MaxDelay+retry.MaxDelay/10)
	}
}

func TestBC32_RetryAfterRaisesTheDelayUpToTheCeiling(t *testing.T) {
	t.Parallel()
	var s retry.Schedule
	for name, c := range map[string]struct {
		attempt int
		after   time.Duration
		want    time.Duration
	}{
		"longer than own backoff":  {1, 2 * time.Minute, 2 * time.Minute},
		"shorter than own backoff": {3, 2 * time.Minute, 30 * time.Minute},
		"none":                     {1, 0, 5 * time.Second},
		"negative":                 {1, -5 * time.Second, 5 * time.Second},
		"most negative":            {1, math.MinInt64, 5 * time.Second},
		"huge":                     {1, math.MaxInt64, retry.MaxDelay},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			is.Equal(s.Delay(c.attempt, nil, c.after), c.want)
			// What the receiver asked for is never shortened by jitter.
			lowest := s.Delay(c.attempt, func(int64) int64 { return 0 }, c.after)
			is.True(lowest >= min(c.after, retry.MaxDelay))
		})
	}
}

func TestNewScheduleRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, delays := range [][]time.Duration{{0}, {-time.Second}, {time.Millisecond}, {time.Second, 25 * time.Hour}, {math.MaxInt64}} {
		_, err := retry.NewSchedule(0, delays...)
		is.True(err != nil)
	}
	_, err := retry.NewSchedule(-1)
	is.True(err != nil)

	s, err := retry.NewSchedule(3)
	is.NoErr(err)
	is.Equal(s.MaxAttempts(), 3)
	is.Equal(s.Delay(2, nil, 0), 5*time.Minute)
}

func TestNewScheduleCopiesItsDelays(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	delays := []time.Duration{time.Minute}
	s, err := retry.NewSchedule(0, delays...)
	is.NoErr(err)
	delays[0] = time.Hour
	is.Equal(s.Delay(1, nil, 0), time.Minute)
}

func FuzzDelay(f *testing.F) {
	f.Add(1, int64(0), uint64(1))
	f.Add(math.MaxInt, int64(math.MaxInt64), uint64(2))
	f.Add(math.MinInt, int64(math.MinInt64), uint64(3))
	f.Fuzz(func(t *testing.T, attempt int, after int64, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var s retry.Schedule
		d := s.Delay(attempt, rng.Int64N, time.Duration(after))
		if d < retry.MinDelay || d > retry.MaxDelay+retry.MaxDelay/10 {
			t.Fatalf("attempt %d after %d: %v", attempt, after, d)
		}
	})
}

func BenchmarkDelay(b *testing.B) {
	b.ReportAllocs()
	var s retry.Schedule
	for b.Loop() {
		s.Delay(5, rand.Int64N, time.Minute)
	}
}
