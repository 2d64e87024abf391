package console

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/dbgen"
)

// slowAfter is when a request in flight, or a delivery that could be sent, is slow.
const slowAfter = 5 * time.Second

type streamsView struct {
	Held []streamRow
	Slow []streamRow
	Next string
	// TooMany says that the slow ones could not be found in time.
	TooMany bool
}

// streamRow is a stream by its head.
type streamRow struct {
	Sub              delivery.SubscriptionID
	ID               delivery.ID
	Tenant, URL      string
	Asset, EventType string
	Mark             mark
	Reason           string
	Since            time.Time
	// Due is when its next attempt may start, nil where that is not so.
	Due      *time.Time
	Attempts int
	Depth    int64
}

// streams lists those that are held and those that are slow.
func (v *visit) streams() error {
	var body streamsView
	sub, seq := int64(0), int64(-1)
	if text := v.query("after"); text != "" {
		before, after, _ := strings.Cut(text, "-")
		var err1, err2 error
		sub, err1 = strconv.ParseInt(before, 10, 64)
		seq, err2 = strconv.ParseInt(after, 10, 64)
		if err1 != nil || err2 != nil {
			return invalid("The address of this page is damaged. Begin again at the first page.")
		}
	}
	err := v.read(func(tx pgx.Tx) error {
		held, err := queries.ConsoleHeld(v.ctx, tx, &dbgen.ConsoleHeldParams{Tenant: v.tenant(), AfterID: sub, AfterSeq: seq, Max: rowsPerPage + 1})
		if err != nil {
			return err
		}
		if len(held) > rowsPerPage {
			held = held[:rowsPerPage]
			last := held[rowsPerPage-1]
			body.Next = v.path("streams", "after", fmt.Sprintf("%d-%d", last.SubscriptionID, last.Seq))
		}
		for _, h := range held {
			body.Held = append(body.Held, streamRow{
				Sub: delivery.SubscriptionID(h.SubscriptionID), ID: delivery.ID(h.Seq), Tenant: h.Tenant, URL: h.Url, Asset: deref(h.Asset),
				EventType: h.EventType, Mark: stateOf("held"), Reason: h.Reason, Since: h.Since, Attempts: int(h.Attempts), Depth: h.Depth,
			})
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = v.read(func(tx pgx.Tx) (err error) {
		body.Slow, err = v.slow(tx)
		return err
	})
	if err != nil && problemOf(err).code == "too_broad" {
		body.TooMany, err = true, nil
	}
	if err != nil {
		return err
	}
	return v.page("streams", "streams", "Streams", body)
}

// slow lists what has been in flight for long, what could be sent and is not, and what
// has failed most often.
func (v *visit) slow(tx pgx.Tx) (rows []streamRow, err error) {
	const most = 20
	flying, err := queries.ConsoleFlying(v.ctx, tx, &dbgen.ConsoleFlyingParams{Tenant: v.tenant(), AtLeastSeconds: slowAfter.Seconds(), Max: most})
	if err != nil {
		return nil, err
	}
	for _, f := range flying {
		rows = append(rows, streamRow{
			Sub: delivery.SubscriptionID(f.SubscriptionID), ID: delivery.ID(f.Seq), Tenant: f.Tenant, URL: f.Url, Asset: deref(f.Asset), EventType: f.EventType,
			Mark: stateOf("in_flight"), Reason: "the endpoint has not answered yet", Since: f.ClaimedAt, Attempts: int(f.Attempt), Depth: f.Depth,
		})
	}
	oldest, err := queries.ConsoleOldestDue(v.ctx, tx, &dbgen.ConsoleOldestDueParams{Tenant: v.tenant(), Max: most})
	if err != nil {
		return nil, err
	}
	for _, d := range oldest {
		if time.Since(d.CreatedAt) > slowAfter {
			rows = append(rows, streamRow{
				Sub: delivery.SubscriptionID(d.SubscriptionID), ID: delivery.ID(d.Seq), URL: d.Url, Asset: deref(d.Asset), EventType: d.EventType,
				Mark: stateOf("pending"), Reason: "could be sent, and waits for a worker or for the endpoint's share", Since: d.CreatedAt, Depth: -1,
			})
		}
	}
	retrying, err := queries.ConsoleRetrying(v.ctx, tx, &dbgen.ConsoleRetryingParams{Tenant: v.tenant(), Max: 2 * most})
	if err != nil {
		return nil, err
	}
	for _, r := range retrying {
		rows = append(rows, streamRow{
			Sub: delivery.SubscriptionID(r.SubscriptionID), ID: delivery.ID(r.Seq), Tenant: r.Tenant, URL: r.Url, Asset: deref(r.Asset), EventType: r.EventType,
			Mark: dueMark(int(r.Attempts)), Reason: retryReason(r.Attempts, r.State), Since: r.CreatedAt, Due: &r.Due, Attempts: int(r.Attempts), Depth: r.Depth,
		})
	}
	return rows, nil
}

// dueMark is the state of a delivery that waits for its time.
func dueMark(attempts int) mark {
	if attempts == 0 {
		return stateOf("pending")
	}
	return stateOf("retrying")
}

func retryReason(attempts int32, state string) string {
	if state != string(delivery.Active) {
		return "the endpoint is " + state
	}
	if attempts == 0 {
		return "was delayed, or something on this side stood in the way"
	}
	return fmt.Sprintf("failed %d %s", attempts, plural(int64(attempts), "time", "times"))
}

type endpointStreamsView struct {
	Sub  *delivery.Subscription
	Rows []streamRow
	Next string
}

// endpointStreams lists every stream of an endpoint that has something waiting.
func (v *visit) endpointStreams() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	var after *string
	if text := v.r.URL.Query().Get("after"); text != "" {
		asset := clean(strings.TrimPrefix(text, "/")) // the stream without an asset has none
		after = &asset
	}
	list, err := v.Store.Streams(v.ctx, sub.ID, after, rowsPerPage+1)
	if err != nil {
		return err
	}
	body := endpointStreamsView{Sub: sub}
	if len(list) > rowsPerPage {
		list = list[:rowsPerPage]
		body.Next = v.path("endpoints/"+sub.ID.String()+"/streams", "after", "/"+list[rowsPerPage-1].Asset)
	}
	for i := range list {
		body.Rows = append(body.Rows, newStreamRow(sub, &list[i]))
	}
	return v.page("endpointstreams", "endpoints", "Streams", body)
}

func newStreamRow(sub *delivery.Subscription, s *delivery.Stream) streamRow {
	row := streamRow{
		Sub: sub.ID, ID: s.Head.ID, Tenant: sub.Tenant, URL: sub.URL, Asset: s.Asset, EventType: s.Head.EventType, Since: s.Since,
		Due: s.Head.Due, Attempts: s.Head.Attempts, Depth: int64(s.Depth),
	}
	switch {
	case s.Head.Held:
		row.Mark, row.Reason = stateOf("held"), s.Head.Reason
	case s.InFlight >= 0:
		row.Mark, row.Reason = stateOf("in_flight"), "for "+duration(s.InFlight)
	case sub.State != delivery.Active:
		row.Mark, row.Reason = stateOf("stopped"), "the endpoint is "+string(sub.State)
	case s.Head.Due != nil:
		row.Mark, row.Reason = dueMark(s.Head.Attempts), retryReason(int32(s.Head.Attempts), string(sub.State))
	default:
		row.Mark, row.Reason = stateOf("pending"), "waits for its turn"
	}
	return row
}
