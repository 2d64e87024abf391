package console

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/dbgen"
)

type endpointsView struct {
	State, Search string
	Rows          []endpointRow
	Next          string
	First         string
}

type endpointRow struct {
	*dbgen.ConsoleSubscriptionsRow
	Spark template.HTML
	Day   tally
	// Oldest is when the oldest delivery in a stream was written; nil without one.
	Oldest *time.Time
}

// Sub is for links.
func (r endpointRow) Sub() delivery.SubscriptionID { return delivery.SubscriptionID(r.ID) }

// Types says in short which events it wants.
func (r endpointRow) Types() string { return strings.Join(r.EventTypes, ", ") }

// endpoints lists the subscriptions, those that do not deliver first.
func (v *visit) endpoints() error {
	body := endpointsView{State: v.query("state"), Search: v.query("q")}
	switch delivery.State(body.State) {
	case "", delivery.Active, delivery.Paused, delivery.Disabled:
	default:
		return invalid(fmt.Sprintf("There is no state %q: choose active, paused or disabled.", body.State))
	}
	place, id, err := endpointCursor(v.query("after"))
	if err != nil {
		return err
	}
	var rows []*dbgen.ConsoleSubscriptionsRow
	err = v.read(func(tx pgx.Tx) (err error) {
		rows, err = queries.ConsoleSubscriptions(v.ctx, tx, &dbgen.ConsoleSubscriptionsParams{
			Tenant: v.tenant(), State: body.State, Search: body.Search, AfterPlace: place, AfterID: id, Max: rowsPerPage + 1,
		})
		return err
	})
	if err != nil {
		return err
	}
	if len(rows) > rowsPerPage {
		rows = rows[:rowsPerPage]
		last := rows[rowsPerPage-1]
		body.Next = v.path("endpoints", "state", body.State, "q", body.Search, "after", fmt.Sprintf("%d-%d", last.Place, last.ID))
	}
	if id != 0 {
		body.First = v.path("endpoints", "state", body.State, "q", body.Search)
	}
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	days, err := v.days(ids)
	if err != nil {
		return err
	}
	for _, r := range rows {
		row := endpointRow{ConsoleSubscriptionsRow: r, Spark: sparkline(days[r.ID]), Day: days[r.ID].sum()}
		if r.OldestMs >= 0 {
			at := time.Now().Add(-time.Duration(r.OldestMs) * time.Millisecond)
			row.Oldest = &at
		}
		body.Rows = append(body.Rows, row)
	}
	return v.page("endpoints", "endpoints", "Endpoints", body)
}

// endpointCursor reads where a page of endpoints begins: after a place and an id.
func endpointCursor(text string) (place int32, id int64, err error) {
	if text == "" {
		return -1, 0, nil
	}
	before, after, _ := strings.Cut(text, "-")
	p, err1 := strconv.ParseInt(before, 10, 32)
	id, err2 := strconv.ParseInt(after, 10, 64)
	if err1 != nil || err2 != nil {
		return 0, 0, invalid("The address of this page is damaged. Begin again at the first page.")
	}
	return int32(p), id, nil
}
