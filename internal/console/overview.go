package console

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/dbgen"
)

// overviewMost is how far the numbers of the overview are counted.
const overviewMost = 10_000

type overviewView struct {
	Attention []attention
	Tiles     []tile
	Rate      *chart
	Latency   *chart
	Cut       bool
	Oldest    []due
	Workers   []worker
}

// attention is something that needs a person.
type attention struct {
	Mark mark
	// What is a sentence, Path where to act.
	What, Detail string
	Since        *time.Time
	Path, Action string
}

type tile struct {
	Label, Value, Detail, Path string
	Class                      string
}

type due struct {
	*dbgen.ConsoleOldestDueRow
	Age time.Duration
}

// Sub and ID are for links.
func (d due) Sub() delivery.SubscriptionID { return delivery.SubscriptionID(d.SubscriptionID) }
func (d due) ID() delivery.ID              { return delivery.ID(d.Seq) }

type worker struct {
	Name            string
	Leases, Expired int64
	// Longest is how long its oldest lease has been held, Ends when its first one does.
	// Both are negative where it holds none.
	Longest, Ends time.Duration
	// Recent counts the attempts that it recorded in the last minutes, LastAgo says when
	// the last was; negative where there were none.
	Recent  int64
	LastAgo time.Duration
}

// overview shows how things are, and first what needs a person.
func (v *visit) overview() error {
	tenant := v.tenant()
	hour, err := v.hour(tenant)
	if err != nil {
		return err
	}
	var totals *dbgen.ConsoleTotalsRow
	var oldest []*dbgen.ConsoleOldestDueRow
	var unwell []*dbgen.ConsoleUnwellRow
	var held []*dbgen.ConsoleHeldRow
	var leases []*dbgen.ConsoleWorkersRow
	err = v.read(func(tx pgx.Tx) (err error) {
		if totals, err = queries.ConsoleTotals(v.ctx, tx, &dbgen.ConsoleTotalsParams{Tenant: tenant, Max: overviewMost + 1}); err != nil {
			return err
		}
		if oldest, err = queries.ConsoleOldestDue(v.ctx, tx, &dbgen.ConsoleOldestDueParams{Tenant: tenant, Max: 5}); err != nil {
			return err
		}
		if unwell, err = queries.ConsoleUnwell(v.ctx, tx, &dbgen.ConsoleUnwellParams{Tenant: tenant, Max: 20}); err != nil {
			return err
		}
		if held, err = queries.ConsoleHeld(v.ctx, tx, &dbgen.ConsoleHeldParams{Tenant: tenant, AfterSeq: -1, Max: 6}); err != nil {
			return err
		}
		leases, err = queries.ConsoleWorkers(v.ctx, tx)
		return err
	})
	if err != nil {
		return err
	}
	body := overviewView{
		Rate:    rateChart(hour.Points, hour.Step),
		Latency: latencyChart(hour.Points, "From the event to its delivery", func(t *tally) *histogram { return &t.delay }),
		Cut:     hour.Cut,
	}
	for _, d := range oldest {
		body.Oldest = append(body.Oldest, due{d, time.Since(d.CreatedAt)})
	}
	if v.operator() {
		if body.Workers, err = v.workers(leases); err != nil {
			return err
		}
	}
	body.Attention = v.attention(totals, unwell, held, body.Oldest, body.Workers)
	body.Tiles = v.tiles(totals, hour)
	return v.page("overview", "overview", "Overview", body)
}

func (v *visit) tiles(totals *dbgen.ConsoleTotalsRow, hour *series) []tile {
	sum, recent := hour.sum(), hour.last(5*time.Minute)
	deadClass := ""
	if totals.Dead+totals.Held > 0 {
		deadClass = "bad"
	}
	return []tile{
		{
			Label: "Delivered", Value: number(sum.Delivered), Path: v.path("deliveries", "state", "delivered"),
			Detail: fmt.Sprintf("in the last hour; %s a minute now", perMinute(recent.Delivered, 5)),
		},
		{
			Label: "Pending", Value: upTo(overviewMost, without(totals.Live, totals.Held, overviewMost)), Path: v.path("deliveries", "state", "pending"),
			Detail: fmt.Sprintf("%s of them in flight", number(totals.InFlight)),
		},
		{Label: "Retrying", Value: upTo(overviewMost, totals.Retrying), Path: v.path("streams"), Detail: "failed, and wait for another attempt"},
		{
			Label: "Dead", Value: upTo(overviewMost, totals.Dead+totals.Held), Path: v.path("dead"), Class: deadClass,
			Detail: fmt.Sprintf("%s of them %s a stream", upTo(overviewMost, totals.Held), plural(totals.Held, "holds", "hold")),
		},
		{
			Label: "Failed attempts", Value: percent(sum.Failed, sum.Total()),
			Detail: fmt.Sprintf("%s of %s in the last hour", number(sum.Failed), number(sum.Total())),
		},
	}
}

// attention lists what needs a person, the worst first.
func (v *visit) attention(totals *dbgen.ConsoleTotalsRow, unwell []*dbgen.ConsoleUnwellRow, held []*dbgen.ConsoleHeldRow, oldest []due, workers []worker) []attention {
	var list []attention
	for _, w := range workers {
		if w.Expired > 0 {
			list = append(list, attention{
				Mark: mark{"bad", "✕", "silent worker"}, What: fmt.Sprintf("%s has let %d %s run out", w.Name, w.Expired, plural(w.Expired, "lease", "leases")),
				Detail: "Another worker takes them back. If none does, no dispatcher is running.", Path: "#workers", Action: "Workers",
			})
		}
	}
	if len(oldest) > 0 && oldest[0].Age > time.Minute {
		since := oldest[0].CreatedAt
		list = append(list, attention{
			Mark: mark{"bad", "✕", "backlog"}, What: "Deliveries that could be sent are waiting",
			Detail: "The oldest is for " + short(60, oldest[0].Url) + ". Is a dispatcher running, and has it room?", Since: &since,
			Path: v.path("streams"), Action: "Streams",
		})
	}
	for _, s := range unwell {
		if s.State != string(delivery.Disabled) {
			continue
		}
		list = append(list, attention{
			Mark: stateOf(s.State), What: short(80, s.Url), Detail: deref(s.StateReason), Since: &s.StateSince,
			Path: endpointPath(delivery.SubscriptionID(s.ID)), Action: "Endpoint",
		})
	}
	for i, h := range held {
		if i == 5 {
			list = append(list, attention{Mark: stateOf("held"), What: "and more held streams", Path: v.path("streams"), Action: "All held streams"})
			break
		}
		list = append(list, attention{
			Mark: mark{"hold", "■", "held stream"}, What: streamName(h.Asset) + " of " + short(60, h.Url),
			Detail: fmt.Sprintf("%s; %s", h.Reason, behind(h.Depth-1)), Since: &h.Since,
			Path: deliveryPath(delivery.SubscriptionID(h.SubscriptionID), delivery.ID(h.Seq)), Action: "Delivery",
		})
	}
	if totals.Dead > 0 {
		list = append(list, attention{
			Mark: mark{"bad", "✕", "dead letters"}, What: fmt.Sprintf("%s dead %s nobody has retried or discarded", upTo(overviewMost, totals.Dead), plural(totals.Dead, "letter that", "letters that")),
			Detail: "Their streams have gone on.", Path: v.path("dead"), Action: "Reasons",
		})
	}
	for _, s := range unwell {
		if s.State == string(delivery.Disabled) {
			continue
		}
		list = append(list, attention{
			Mark: stateOf(s.State), What: short(80, s.Url), Detail: deref(s.StateReason), Since: &s.StateSince,
			Path: endpointPath(delivery.SubscriptionID(s.ID)), Action: "Endpoint",
		})
	}
	return list
}

// workers joins who holds leases with who has recorded attempts in the last minutes.
func (v *visit) workers(leases []*dbgen.ConsoleWorkersRow) ([]worker, error) {
	var list []worker
	index := map[string]int{}
	for _, l := range leases {
		index[l.Claimant] = len(list)
		list = append(list, worker{
			Name: l.Claimant, Leases: l.Leases, Expired: l.Expired, Longest: time.Duration(l.LongestMs) * time.Millisecond,
			Ends: time.Duration(l.EndsMs) * time.Millisecond, LastAgo: -1,
		})
	}
	err := v.statistics(func(ctx context.Context, tx pgx.Tx, now *dbgen.StatisticsNowRow) error {
		rows, err := queries.StatisticsClaimants(ctx, tx, &dbgen.StatisticsClaimantsParams{Since: now.Now.Add(-5 * time.Minute), Max: freshMax})
		for _, r := range rows {
			i, ok := index[r.Claimant]
			if !ok {
				i = len(list)
				list = append(list, worker{Name: r.Claimant, Longest: -1, Ends: -1})
			}
			list[i].Recent, list[i].LastAgo = r.Attempts, time.Duration(r.AgoMs)*time.Millisecond
		}
		return err
	})
	return list, err
}

// behind says how many wait behind a head.
func behind(n int64) string {
	if n == 0 {
		return "nothing waits behind it yet"
	}
	return upTo(1000, n) + " " + plural(n, "waits", "wait") + " behind it"
}

// streamName is how a stream is called: by its asset.
func streamName(asset *string) string {
	if asset == nil || *asset == "" {
		return "the stream without an asset"
	}
	return "stream " + short(40, *asset)
}

// without is a count less a part of it; a count that stopped at its limit stays there.
func without(n, part int64, most int) int64 {
	if n > int64(most) {
		return n
	}
	return max(n-part, 0)
}

// perMinute is so many in so many minutes, a minute.
func perMinute(n int64, minutes float64) string {
	if r := float64(n) / minutes; r < 10 {
		return trim(r)
	}
	return number(int64(float64(n)/minutes + 0.5))
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return strings.TrimSpace(*s)
}
