package console

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/pgtest"
)

func TestHistogram(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(len(histogram{}), len(bounds)+1)
	var h histogram
	is.Equal(h.quantile(0.5), time.Duration(-1)) // nothing was counted
	h.put(-1, 9)
	is.Equal(h.total(), int64(0))
	h.put(5, 100) // from 7 to 10 ms
	is.Equal(h.quantile(0.5), 8500*time.Microsecond)
	h.put(20, 10) // from 2 to 3 s
	is.Equal(h.quantile(0.5).Round(time.Millisecond), 9*time.Millisecond)
	is.Equal(h.quantile(0.95) > 2*time.Second, true)
	is.Equal(h.quantile(1), 3*time.Second)
	h = histogram{}
	h.put(len(bounds), 1)
	is.Equal(h.quantile(0.5), 24*time.Hour) // or more
	h = histogram{}
	h.put(0, 1)
	is.True(h.quantile(0.5) < time.Millisecond)
}

// What was recorded is on the pages at once; when its minute is counted it is there once.
func TestAttemptsAreCountedOnce(t *testing.T) {
	t.Parallel()
	s := setup(t)
	sub := s.subscribe("acme", "/hook")
	other := s.subscribe("other", "/hook")
	s.enqueue("acme", "thing.done", names("a", 30)...)
	s.enqueue("other", "thing.done", "x")
	s.settle(func(r *delivery.Result) {
		if r.Claim.Tenant == "acme" && r.Claim.Seq%3 == 0 {
			refused(r)
		}
	})
	v := s.visit(t)
	check := func(when string) {
		t.Helper()
		hour, err := v.hour("acme")
		s.is.NoErr(err)
		sum := hour.sum()
		s.is.Equal([]int64{sum.Delivered, sum.Failed, sum.answer.total(), sum.delay.total()}, []int64{20, 10, 20, 20}) // acme's
		all, err := v.hour("")
		s.is.NoErr(err)
		sum = all.sum()
		s.is.Equal(sum.Total(), int64(31)) // of all
		day, kinds, err := v.day(int64(sub.ID))
		s.is.NoErr(err)
		sum = day.sum()
		s.is.Equal([]int64{sum.Delivered, sum.Failed}, []int64{20, 10}) // of the subscription
		n := int64(0)
		for _, k := range kinds {
			s.is.Equal(k.EventType, "thing.done")
			n += k.Attempts
		}
		s.is.Equal(n, int64(30))
		days, err := v.days([]int64{int64(sub.ID), int64(other.ID)})
		s.is.NoErr(err)
		sum = days[int64(sub.ID)].sum()
		s.is.Equal([]int64{sum.Delivered, sum.Failed}, []int64{20, 10})
		sum = days[int64(other.ID)].sum()
		s.is.Equal(sum.Total(), int64(1))
		_ = when
	}
	check("before")
	// The minute is over.
	s.exec("UPDATE postlane.attempts SET recorded_at = recorded_at - interval '2 minutes'")
	s.exec("UPDATE postlane.statistics_progress SET at = date_trunc('minute', now()) - interval '5 minutes'")
	check("not counted yet")
	var group sync.WaitGroup
	for range 3 { // several servers
		group.Go(func() {
			for range 20 {
				if _, _, err := s.console.countMinute(s.ctx, 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	s.is.Equal(one[int](s, "SELECT count(*) FROM postlane.statistics_minutes"), 3) // two tenants, and all
	check("counted")
	// A later minute of the same span is added.
	s.enqueue("acme", "thing.done", "later")
	s.settle(succeed)
	day, _, err := v.day(int64(sub.ID))
	s.is.NoErr(err)
	sum := day.sum()
	s.is.Equal(sum.Delivered, int64(21))
}

func TestSpansAddUp(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.subscribe("acme", "/hook")
	at := one[time.Time](s, "SELECT date_bin('5 minutes', now(), '2000-01-01Z') - interval '10 minutes'")
	for i := range 3 {
		s.enqueue("acme", "thing.done", names("a", 4)...)
		s.settle(succeed)
		s.exec("UPDATE postlane.attempts SET recorded_at = $1 WHERE recorded_at > now() - interval '5 minutes'", at.Add(time.Duration(i)*time.Minute))
	}
	for i := range 3 {
		read, err := queries.StatisticsCount(s.ctx, s.pool, &dbgen.StatisticsCountParams{At: at.Add(time.Duration(i) * time.Minute), Every: 1, Bounds: bounds})
		s.is.NoErr(err)
		s.is.Equal(read, int64(4))
	}
	s.is.Equal(one[int](s, "SELECT count(*) FROM postlane.statistics_spans"), 1)
	s.is.Equal(one[int](s, "SELECT delivered FROM postlane.statistics_spans"), 12)
	s.is.Equal(one[int](s, "SELECT sum(n) FROM postlane.statistics_spans, unnest(answer) n"), 12)
	s.is.Equal(one[int](s, "SELECT attempts FROM postlane.statistics_kinds"), 12)
}

// An hour is one of the world's, also where the server's zone is half an hour away.
func TestHoursOfAZoneHalfAnHourAway(t *testing.T) {
	t.Parallel()
	s := setupOn(t, pgtest.NewDirect(t)) // a pooler's sessions know the zone of before
	s.exec(fmt.Sprintf("ALTER DATABASE %s SET timezone = 'Asia/Kolkata'", s.pool.Config().ConnConfig.Database))
	s.pool.Reset()
	s.is.Equal(one[string](s, "SHOW timezone"), "Asia/Kolkata")
	sub := s.subscribe("acme", "/hook")
	hour := time.Now().UTC().Truncate(time.Hour).Add(-time.Hour)
	for _, after := range []time.Duration{20 * time.Minute, 40 * time.Minute} { // on two sides of an hour there
		at := hour.Add(after)
		s.enqueue("acme", "thing.done", names("a", 4)...)
		s.settle(succeed)
		s.exec("UPDATE postlane.attempts SET recorded_at = $1 WHERE recorded_at > now() - interval '10 minutes'", at)
		_, err := queries.StatisticsCount(s.ctx, s.pool, &dbgen.StatisticsCountParams{At: at, Every: 1, Bounds: bounds})
		s.is.NoErr(err)
	}
	s.is.True(one[time.Time](s, "SELECT at FROM postlane.statistics_kinds").Equal(hour))
	s.is.Equal(one[int](s, "SELECT attempts FROM postlane.statistics_kinds"), 8)
	rows, err := queries.StatisticsHours(s.ctx, s.pool, &dbgen.StatisticsHoursParams{SubscriptionIds: []int64{int64(sub.ID)}, Since: hour})
	s.is.NoErr(err)
	s.is.Equal(len(rows), 1)
	s.is.True(rows[0].At.Equal(hour))
	s.is.Equal(rows[0].Delivered, int64(8))
}

func TestSampling(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(sampling(0, 1), int64(1))
	is.Equal(sampling(countAtMost, 1), int64(1))
	is.Equal(sampling(countAtMost+1, 1), int64(2))
	is.Equal(sampling(countAtMost, 2), int64(2)) // goes on
	is.Equal(sampling(10, 4), int64(1))          // and ends

	s := setup(t)
	s.subscribe("acme", "/hook")
	s.enqueue("acme", "thing.done", names("a", 300)...)
	s.settle(succeed)
	read, err := queries.StatisticsCount(s.ctx, s.pool, &dbgen.StatisticsCountParams{
		At: one[time.Time](s, "SELECT date_trunc('minute', min(recorded_at)) FROM postlane.attempts"), Every: 3, Bounds: bounds,
	})
	s.is.NoErr(err)
	s.is.True(read > 50 && read < 150)
	s.is.Equal(one[int64](s, "SELECT delivered FROM postlane.statistics_minutes WHERE tenant = 'acme'"), 3*read) // as if all had been read
}

// Count keeps going, and stops when it is told to.
func TestCountRuns(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.exec("UPDATE postlane.statistics_progress SET at = date_trunc('minute', now()) - interval '4 days'")
	s.exec("INSERT INTO postlane.statistics_minutes VALUES ('', now() - interval '26 hours', 1, 1, '{}', '{}')")
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.console.Count(ctx)
	}()
	s.until("SELECT at > now() - interval '1 day' FROM postlane.statistics_progress") // the days between are left out
	cancel()
	<-done
	s.is.NoErr(queries.StatisticsForget(s.ctx, s.pool))
	s.is.Equal(one[int](s, "SELECT count(*) FROM postlane.statistics_minutes WHERE at < now() - interval '25 hours'"), 0)
}

func TestChartsSayOnlyWhatIsOurs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	points := newSeries(time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC), time.Minute, 61).Points
	is.Equal(points[60].At, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	is.Equal(points[0].At, time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC))
	is.True(rateChart(points, time.Minute).Empty)
	points[7].Delivered, points[7].Failed = 10, 5
	points[7].answer.put(9, 15)
	c := rateChart(points, time.Minute)
	is.True(!c.Empty)
	is.Equal(c.Rows, [][]string{{"11:07 UTC", "10", "5"}})
	is.Equal(c.Top, "15")
	l := latencyChart(points, "Time", func(t *tally) *histogram { return &t.answer })
	is.True(strings.Contains(l.Summary, "p50 40 ms"))
	for _, svg := range []string{string(c.SVG), string(l.SVG), string(sparkline(&series{Points: points})), string(stackedBar([]share{{"good", "✓", `"><script>`, "1", 1}, {"bad", "✕", "none", "0", 0}}))} {
		is.True(!strings.Contains(svg, "<script"))
		is.True(!strings.Contains(svg, "NaN"))
		is.True(!strings.Contains(svg, "style="))
	}
}
