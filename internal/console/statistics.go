package console

import (
	"context"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// tally is what was tried in one step of a series.
type tally struct {
	At                time.Time
	Delivered, Failed int64
	answer, delay     histogram
}

func (t *tally) merge(o *tally) {
	t.Delivered += o.Delivered
	t.Failed += o.Failed
	t.answer.merge(&o.answer)
	t.delay.merge(&o.delay)
}

// Total counts what was tried.
func (t *tally) Total() int64 { return t.Delivered + t.Failed }

// series is what was tried over a time, step by step, the last one up to now.
type series struct {
	Step   time.Duration
	Points []tally
	// Now is the database's time.
	Now time.Time
	// Cut says that the newest part was too much to read, and is not all there.
	Cut bool
}

// newSeries returns an empty series that ends with now.
func newSeries(now time.Time, step time.Duration, points int) *series {
	s := &series{Step: step, Points: make([]tally, points), Now: now}
	last := now.UTC().Truncate(step)
	for i := range s.Points {
		s.Points[i].At = last.Add(-time.Duration(points-1-i) * step)
	}
	return s
}

// at returns the point of a time; nil before the first.
func (s *series) at(t time.Time) *tally {
	i := sort.Search(len(s.Points), func(i int) bool { return s.Points[i].At.After(t) }) - 1
	if i < 0 {
		return nil
	}
	return &s.Points[i]
}

// sum adds all points up.
func (s *series) sum() (t tally) {
	for i := range s.Points {
		t.merge(&s.Points[i])
	}
	return t
}

// last adds up the points of the last so long.
func (s *series) last(d time.Duration) (t tally) {
	for i := range s.Points {
		if s.Points[i].At.After(s.Now.Add(-d - s.Step)) {
			t.merge(&s.Points[i])
		}
	}
	return t
}

// freshMax is how many attempts a page reads beyond what is counted.
const freshMax = 20_000

// statistics runs statements that read statistics.
func (v *visit) statistics(f func(ctx context.Context, tx pgx.Tx, now *dbgen.StatisticsNowRow) error) error {
	return pgx.BeginTxFunc(v.ctx, v.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := queries.StatisticsSettings(v.ctx, tx, 4000); err != nil {
			return err
		}
		now, err := queries.StatisticsNow(v.ctx, tx)
		if err != nil {
			return err
		}
		return f(v.ctx, tx, now)
	})
}

// hour is the last hour of a tenant, or ("") of all, minute by minute.
func (v *visit) hour(tenant string) (s *series, err error) {
	err = v.statistics(func(ctx context.Context, tx pgx.Tx, now *dbgen.StatisticsNowRow) error {
		s = newSeries(now.Now, time.Minute, 61)
		rows, err := queries.StatisticsMinutes(ctx, tx, &dbgen.StatisticsMinutesParams{Tenant: tenant, Since: s.Points[0].At})
		if err != nil {
			return err
		}
		for _, r := range rows {
			if p := s.at(r.At); p != nil {
				p.Delivered += r.Delivered
				p.Failed += r.Failed
				p.answer.add(r.Answer)
				p.delay.add(r.Delay)
			}
		}
		_, err = v.fresh(ctx, tx, s, now.At, &dbgen.StatisticsFreshParams{Tenant: tenant})
		return err
	})
	return s, err
}

// kind is how often an event type met an outcome.
type kind struct {
	EventType, Outcome string
	// Status is -1 where no answer came.
	Status   int
	Attempts int64
}

// day is the last day of a subscription: in five minutes each, and by kind.
func (v *visit) day(sub int64) (s *series, kinds []kind, err error) {
	err = v.statistics(func(ctx context.Context, tx pgx.Tx, now *dbgen.StatisticsNowRow) error {
		s = newSeries(now.Now, 5*time.Minute, 24*12+1)
		rows, err := queries.StatisticsSpans(ctx, tx, &dbgen.StatisticsSpansParams{SubscriptionID: sub, Since: s.Points[0].At})
		if err != nil {
			return err
		}
		for _, r := range rows {
			if p := s.at(r.At); p != nil {
				p.Delivered += r.Delivered
				p.Failed += r.Failed
				p.answer.add(r.Answer)
			}
		}
		counted, err := queries.StatisticsKinds(ctx, tx, &dbgen.StatisticsKindsParams{SubscriptionID: sub, Since: s.Points[0].At.Truncate(time.Hour)})
		if err != nil {
			return err
		}
		for _, k := range counted {
			kinds = append(kinds, kind{k.EventType, k.Outcome, int(k.Status), k.Attempts})
		}
		fresh, err := v.fresh(ctx, tx, s, now.At, &dbgen.StatisticsFreshParams{BySubscription: true, SubscriptionIds: []int64{sub}})
		for _, r := range fresh {
			kinds = append(kinds, kind{r.EventType, r.Outcome, int(r.Status), r.Attempts})
		}
		return err
	})
	return s, kinds, err
}

// days is the last day of several subscriptions, hour by hour.
func (v *visit) days(subs []int64) (map[int64]*series, error) {
	all := map[int64]*series{}
	err := v.statistics(func(ctx context.Context, tx pgx.Tx, now *dbgen.StatisticsNowRow) error {
		for _, id := range subs {
			all[id] = newSeries(now.Now, time.Hour, 24)
		}
		if len(subs) == 0 {
			return nil
		}
		rows, err := queries.StatisticsHours(ctx, tx, &dbgen.StatisticsHoursParams{SubscriptionIds: subs, Since: all[subs[0]].Points[0].At})
		if err != nil {
			return err
		}
		for _, r := range rows {
			if p := all[r.SubscriptionID].at(r.At); p != nil {
				p.Delivered += r.Delivered
				p.Failed += r.Failed
			}
		}
		fresh, err := v.fresh(ctx, tx, nil, now.At, &dbgen.StatisticsFreshParams{BySubscription: true, SubscriptionIds: subs})
		for _, r := range fresh {
			all[r.SubscriptionID].addFresh(r)
		}
		return err
	})
	return all, err
}

// fresh reads what was recorded since the last counted minute, and adds it to s, if any.
func (v *visit) fresh(ctx context.Context, tx pgx.Tx, s *series, since time.Time, arg *dbgen.StatisticsFreshParams) ([]*dbgen.StatisticsFreshRow, error) {
	arg.Since, arg.Bounds, arg.Max = since, bounds, freshMax
	rows, err := queries.StatisticsFresh(ctx, tx, arg)
	if err != nil || s == nil {
		return rows, err
	}
	read := int64(0)
	for _, r := range rows {
		read += r.Attempts
		s.addFresh(r)
	}
	s.Cut = read >= freshMax
	return rows, nil
}

func (s *series) addFresh(r *dbgen.StatisticsFreshRow) {
	p := s.at(r.At)
	if p == nil {
		return
	}
	if r.Outcome == "delivered" {
		p.Delivered += r.Attempts
	} else {
		p.Failed += r.Attempts
	}
	p.answer.put(int(r.Answer), r.Attempts)
	p.delay.put(int(r.Delay), r.Attempts)
}
