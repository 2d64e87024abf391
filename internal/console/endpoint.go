package console

import (
	"cmp"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/view"
)

// waitingMost is how far an endpoint's pending deliveries are counted.
const waitingMost = 10_000

type endpointView struct {
	Sub     *delivery.Subscription
	Waiting *dbgen.ConsoleWaitingRow
	Oldest  *time.Time
	Bar     template.HTML
	Shares  []share
	// Window is what the charts show: "hour" or "day".
	Window           string
	Rate, Latency    *chart
	Cut              bool
	Day              tally
	P50, P95         time.Duration
	ByType, ByAnswer []kindRow
	Secrets          []*dbgen.ConsoleSecretsRow

	// New says that the endpoint has just been made.
	New bool
	// Test and Secret are what an action has just brought; nil and "" on the page.
	Test    *testView
	Secret  string
	Overlap time.Duration
	Signing *view.Signing
}

// kindRow is a row of what was tried, by one of its sides.
type kindRow struct {
	Label, Detail string
	Good          bool
	Attempts      int64
	Failed        int64
	Total         int64
}

type testView struct {
	Result sender.Result
	Mark   mark
	Body   string
	Header string
	// Error is for operators.
	Error string
}

// endpoint shows one subscription.
func (v *visit) endpoint() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	body, err := v.endpointView(sub)
	if err != nil {
		return err
	}
	return v.page("endpoint", "endpoints", sub.URL, body)
}

func (v *visit) endpointView(sub *delivery.Subscription) (*endpointView, error) {
	e := &endpointView{Sub: sub, Window: "day"}
	if v.query("window") == "hour" {
		e.Window = "hour"
	}
	err := v.read(func(tx pgx.Tx) (err error) {
		if e.Waiting, err = queries.ConsoleWaiting(v.ctx, tx, &dbgen.ConsoleWaitingParams{SubscriptionID: int64(sub.ID), Max: waitingMost + 1}); err != nil {
			return err
		}
		e.Secrets, err = queries.ConsoleSecrets(v.ctx, tx, int64(sub.ID))
		return err
	})
	if err != nil {
		return nil, err
	}
	day, kinds, err := v.day(int64(sub.ID))
	if err != nil {
		return nil, err
	}
	e.Cut, e.Day = day.Cut, day.sum()
	e.P50, e.P95 = e.Day.answer.quantile(0.5), e.Day.answer.quantile(0.95)
	points, step := day.coarser(3), 15*time.Minute
	if e.Window == "hour" {
		points, step = day.Points[len(day.Points)-13:], day.Step
	}
	e.Rate = rateChart(points, step)
	e.Latency = latencyChart(points, "Time to the answer", func(t *tally) *histogram { return &t.answer })
	if e.Waiting.OldestMs >= 0 {
		at := time.Now().Add(-time.Duration(e.Waiting.OldestMs) * time.Millisecond)
		e.Oldest = &at
	}
	e.shares()
	e.ByType, e.ByAnswer = byType(kinds), byAnswer(kinds)
	return e, nil
}

// shares are the outcomes of a day and what is not done, side by side.
func (e *endpointView) shares() {
	w := e.Waiting
	waiting := without(w.Live, w.Held+w.Retrying, waitingMost)
	e.Shares = []share{
		{"good", "✓", "delivered in 24 h", number(e.Day.Delivered), e.Day.Delivered},
		{"idle", "○", "pending", upTo(waitingMost, waiting), waiting},
		{"warn", "↻", "retrying", upTo(waitingMost, w.Retrying), w.Retrying},
		{"hold", "■", "held", upTo(waitingMost, w.Held), w.Held},
		{"bad", "✕", "dead", upTo(waitingMost, w.Dead), w.Dead},
	}
	e.Bar = stackedBar(e.Shares)
}

func byType(kinds []kind) []kindRow {
	rows := map[string]*kindRow{}
	for _, k := range kinds {
		r := rows[k.EventType]
		if r == nil {
			r = &kindRow{Label: k.EventType}
			rows[k.EventType] = r
		}
		r.Attempts += k.Attempts
		if k.Outcome != string(sender.Delivered) {
			r.Failed += k.Attempts
		}
	}
	return sorted(rows)
}

func byAnswer(kinds []kind) []kindRow {
	rows := map[string]*kindRow{}
	for _, k := range kinds {
		label, detail := statusText(k.Status), ""
		if k.Status < 0 {
			label, detail = strings.ReplaceAll(k.Outcome, "_", " "), meaning(k.Outcome)
		}
		r := rows[label]
		if r == nil {
			r = &kindRow{Label: label, Detail: detail, Good: k.Outcome == string(sender.Delivered)}
			rows[label] = r
		}
		r.Attempts += k.Attempts
	}
	return sorted(rows)
}

// sorted lists rows by their size, and no more than a page shows.
func sorted(rows map[string]*kindRow) []kindRow {
	var list []kindRow
	total := int64(0)
	for _, r := range rows {
		total += r.Attempts
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b kindRow) int {
		return cmp.Or(cmp.Compare(b.Attempts, a.Attempts), cmp.Compare(a.Label, b.Label))
	})
	for i := range list {
		list[i].Total = total
	}
	const most = 12
	return list[:min(len(list), most)]
}
