package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/dbgen"
)

type deliveriesView struct {
	Filter filter
	// Sub is the endpoint that is looked at; nil for all.
	Sub    *delivery.Subscription
	States []choice
	Rows   []deliveryRow
	Next   string
	First  string
	// Searched counts the endpoints that were read, where not all were, and Until is how
	// far back they were, where the page is short and not the last.
	Searched int
	Until    time.Time
	// Endpoints are those to choose from, where they are few.
	Endpoints []*delivery.Subscription
}

type choice struct {
	Value   string
	Mark    mark
	Checked bool
}

type deliveryRow struct {
	delivery.Delivery
	Sub    delivery.SubscriptionID
	URL    string
	Tenant string
	Mark   mark
	// Last is its last attempt, nil without one.
	Last *dbgen.ConsoleLastAttemptsRow
}

// LastText says what came of the last attempt.
func (r deliveryRow) LastText() string {
	switch {
	case r.Last == nil:
		return ""
	case r.Last.Status != nil:
		return strconv.Itoa(int(*r.Last.Status))
	}
	return strings.ReplaceAll(r.Last.Outcome, "_", " ")
}

// filter is what a page of deliveries shows, as its address says it.
type filter struct {
	delivery.Filter
	Endpoint     string
	Type, Asset  string
	Since, Until string
	before       cursor
}

// cursor is where a page begins: after this delivery, newest first. Deliveries of one
// event share their seq, and are in the order of their subscriptions.
type cursor struct {
	id  delivery.ID
	sub delivery.SubscriptionID
}

func (c cursor) String() string { return fmt.Sprintf("%d-%d", int64(c.id), int64(c.sub)) }

// deliveries lists them, newest first, of one endpoint or of all.
func (v *visit) deliveries() error {
	f, err := v.filter()
	if err != nil {
		return err
	}
	body := deliveriesView{Filter: f}
	for _, s := range delivery.DeliveryStates {
		body.States = append(body.States, choice{string(s), stateOf(s), slices.Contains(f.States, s)})
	}
	if f.Endpoint != "" {
		if body.Sub, err = v.subscriptionOf(f.Endpoint); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(v.ctx, 6*time.Second)
	defer cancel()
	f.Within = v.Search
	var found logPage
	if body.Sub != nil {
		found, err = v.log(ctx, body.Sub.ID, body.Sub.Tenant, body.Sub.URL, f, rowsPerPage+1)
	} else {
		found, body.Searched, err = v.logOfAll(ctx, f, rowsPerPage+1)
	}
	if errors.Is(err, context.DeadlineExceeded) && v.ctx.Err() == nil {
		err = delivery.ErrTooBroad
	}
	if err != nil {
		return err
	}
	body.Rows = found.rows
	address := func(before string) string {
		pairs := []string{"endpoint", f.Endpoint, "type", f.Type, "asset", f.Asset, "since", f.Since, "until", f.Until, "before", before}
		path := v.path("deliveries", pairs...)
		for _, s := range f.States {
			path += separator(path) + "state=" + string(s)
		}
		if f.OfAsset && f.Asset == "" {
			path += separator(path) + "no_asset=1"
		}
		return path
	}
	if len(body.Rows) > rowsPerPage {
		body.Rows = body.Rows[:rowsPerPage]
		last := body.Rows[rowsPerPage-1]
		body.Next = address(cursor{last.ID, last.Sub}.String())
	} else if found.next != 0 {
		body.Next, body.Until = address(cursor{found.next, math.MaxInt64}.String()), found.searched
	}
	if f.before != (cursor{}) {
		body.First = address("")
	}
	if err := v.lastAttempts(body.Rows); err != nil {
		return err
	}
	if body.Endpoints, err = v.choices(); err != nil {
		return err
	}
	return v.page("deliveries", "deliveries", "Deliveries", body)
}

// choices are the endpoints to filter by; none where they are too many to choose from.
func (v *visit) choices() ([]*delivery.Subscription, error) {
	const most = 100
	list, err := v.Store.Subscriptions(v.ctx, v.tenant(), 0, most+1)
	if len(list) > most {
		list = nil
	}
	slices.SortFunc(list, func(a, b *delivery.Subscription) int { return cmp.Compare(a.URL, b.URL) })
	return list, err
}

// lastAttempts adds to rows what came of their last attempts.
func (v *visit) lastAttempts(rows []deliveryRow) error {
	arg := &dbgen.ConsoleLastAttemptsParams{}
	type key struct{ sub, seq int64 }
	index := map[key]int{}
	for i := range rows {
		k := key{int64(rows[i].Sub), int64(rows[i].ID)}
		arg.SubscriptionIds, arg.Seqs = append(arg.SubscriptionIds, k.sub), append(arg.Seqs, k.seq)
		index[k] = i
	}
	return v.read(func(tx pgx.Tx) error {
		last, err := queries.ConsoleLastAttempts(v.ctx, tx, arg)
		for _, l := range last {
			rows[index[key{l.SubscriptionID, l.Seq}]].Last = l
		}
		return err
	})
}

func separator(path string) string {
	if strings.Contains(path, "?") {
		return "&"
	}
	return "?"
}

// filter reads the filter of the page's address, and says what in it cannot be.
func (v *visit) filter() (f filter, err error) {
	q := v.r.URL.Query()
	for _, text := range q["state"] {
		if text == "" {
			continue
		}
		state, err := delivery.ParseDeliveryState(clean(text))
		if err != nil {
			return f, err
		}
		if !slices.Contains(f.States, state) {
			f.States = append(f.States, state)
		}
	}
	f.Endpoint, f.Type, f.Asset = v.query("endpoint"), v.query("type"), v.query("asset")
	f.EventType, f.Filter.Asset = f.Type, f.Asset
	f.OfAsset = f.Asset != "" || q.Get("no_asset") != ""
	if f.Since, f.Filter.Since, err = v.time("since"); err != nil {
		return f, err
	}
	if f.Until, f.Filter.Until, err = v.time("until"); err != nil {
		return f, err
	}
	if text := v.query("before"); text != "" {
		id, sub, _ := strings.Cut(text, "-")
		n, err1 := strconv.ParseInt(id, 10, 64)
		s, err2 := strconv.ParseInt(sub, 10, 64)
		if err1 != nil || err2 != nil || n < 1 || n == math.MaxInt64 {
			return f, invalid("The address of this page is damaged. Begin again at the first page.")
		}
		f.before = cursor{delivery.ID(n), delivery.SubscriptionID(s)}
	}
	return f, nil
}

// times are how a time may be written in a filter: as a browser's field for it does, or
// as RFC 3339.
var times = []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339Nano, "2006-01-02"}

func (v *visit) time(name string) (string, time.Time, error) {
	return readTime(v.query(name))
}

// readTime reads a time, as a field has it and as it is; both are zero for none.
func readTime(text string) (string, time.Time, error) {
	if text == "" {
		return "", time.Time{}, nil
	}
	for _, layout := range times {
		if t, err := time.Parse(layout, text); err == nil && t.Year() > 1970 && t.Year() < 3000 {
			return t.UTC().Format("2006-01-02T15:04:05"), t.UTC(), nil
		}
	}
	return "", time.Time{}, invalid(fmt.Sprintf("%q is no time: write it in UTC as 2026-01-31T15:04.", text))
}
