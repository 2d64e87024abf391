package console

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/view"
)

type deliveryView struct {
	Sub    *delivery.Subscription
	It     delivery.Delivery
	Mark   mark
	Event  *delivery.StoredEvent // nil where it is no longer kept
	Origin delivery.ReplayOrigin
	Place  place
	Lives  []life
	Curl   string
	// CanRetry, CanDiscard and CanRelease say what its state allows; WhyNot why a retry
	// is not.
	CanRetry, CanDiscard, CanRelease bool
	WhyNot                           string
	Made                             int
}

// place is where a delivery stands in its stream.
type place struct {
	Previous, Next, Head *delivery.Delivery
	// Before counts what stands before it and is not settled, up to 1,000.
	Before int64
}

// life is the attempts between two revivals: the first, or those after a retry.
type life struct {
	// Revival is nil for the first.
	Revival  *delivery.Revival
	Attempts []attemptView
}

type attemptView struct {
	delivery.Attempt
	Mark    mark
	Text    string
	Body    string
	Headers string
	Bars    []phase
	// Open says that its answer is shown at once: that of the last failure.
	Open bool
}

// phase is a part of an attempt's time, for a bar of a hundred.
type phase struct {
	Class, Label, Took string
	X, Width           float64
}

// delivery shows one, with all that happened to it.
func (v *visit) delivery() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	id, err := delivery.ParseID(v.r.PathValue("delivery_id"))
	if err != nil {
		return err
	}
	body := deliveryView{Sub: sub}
	if body.It, err = v.Store.Delivery(v.ctx, sub.ID, id); err != nil {
		return err
	}
	body.Mark = deliveryMark(&body.It)
	attempts, err := v.Store.Attempts(v.ctx, sub.ID, id)
	if err != nil {
		return err
	}
	revivals, err := v.Store.Revivals(v.ctx, sub.ID, id)
	if err != nil {
		return err
	}
	if body.Origin, err = v.Store.ReplayOf(v.ctx, sub.ID, id); err != nil {
		return err
	}
	body.Made = len(attempts)
	body.Lives = v.lives(attempts, revivals)
	if body.Event, err = v.Store.Event(v.ctx, sub.Tenant, body.It.EventID); errors.Is(err, delivery.ErrNotFound) {
		body.Event = nil
	} else if err != nil {
		return err
	}
	if body.Place, err = v.place(sub.ID, &body.It); err != nil {
		return err
	}
	body.may()
	body.Curl = curl(sub, &body.It, body.Event, len(attempts)+1)
	return v.page("delivery", "deliveries", "Delivery "+id.String(), body)
}

// may says what the state of a delivery allows.
func (d *deliveryView) may() {
	d.CanRetry = d.It.State == delivery.Dead
	d.CanRelease = d.It.Held
	d.CanDiscard = d.It.State == delivery.Dead || d.It.State == delivery.Pending
	switch {
	case d.CanRetry && d.Event == nil:
		d.CanRetry, d.WhyNot = false, "Its event is no longer kept, so there is nothing to send."
	case d.CanRetry:
	case d.It.State == delivery.Delivering:
		d.WhyNot = "It is being sent at this moment."
	case d.It.State == delivery.Pending:
		d.WhyNot = "It is not dead: it is attempted by itself."
	default:
		d.WhyNot = "Only a dead letter can be retried; this one is " + string(d.It.State) + "."
	}
}

// lives sorts attempts by the revival that they came after.
func (v *visit) lives(attempts []delivery.Attempt, revivals []delivery.Revival) []life {
	lives := make([]life, len(revivals)+1)
	index := map[*delivery.Revival]int{}
	for i := range revivals {
		lives[i+1].Revival = &revivals[i]
		index[&revivals[i]] = i + 1
	}
	longest := time.Millisecond
	for i := range attempts {
		if d := attempts[i].Duration; d != nil {
			longest = max(longest, *d)
		}
	}
	for i := range attempts {
		a := attemptView{Attempt: attempts[i], Mark: stateOf("failed"), Text: meaning(attempts[i].Outcome)}
		if a.Outcome == "delivered" {
			a.Mark = stateOf("delivered")
		}
		if a.Outcome == "http_status" && a.Status != nil {
			a.Text = "the endpoint answered " + statusText(*a.Status)
		}
		a.Body, a.Attempt.Answer = view.Printable(a.Answer), nil
		a.Headers, a.Attempt.Headers = view.Printable(a.Attempt.Headers), nil
		if !v.operator() {
			a.Error, a.Claimant = "", ""
		}
		a.Bars = phases(&a.Attempt, longest)
		a.Open = i == len(attempts)-1 && a.Outcome != "delivered"
		n := index[delivery.RevivalOf(&attempts[i], revivals)]
		lives[n].Attempts = append(lives[n].Attempts, a)
	}
	return lives
}

// phases are the parts of an attempt's time: name lookup, connection, TLS, the wait for
// the first byte, and the rest of the answer. longest is that of all attempts.
func phases(a *delivery.Attempt, longest time.Duration) []phase {
	if a.Duration == nil {
		return nil
	}
	wait := time.Duration(0)
	if a.FirstByte > 0 {
		wait = max(a.FirstByte-a.DNS-a.Connect-a.TLS, 0)
	}
	rest := max(*a.Duration-a.DNS-a.Connect-a.TLS-wait, 0)
	last := phase{Class: "rest", Label: "answer read"}
	if a.FirstByte == 0 {
		last = phase{Class: "lost", Label: "no answer"}
	}
	var list []phase
	x := 0.0
	for _, p := range []struct {
		phase
		took time.Duration
	}{
		{phase{Class: "dns", Label: "DNS"}, a.DNS}, {phase{Class: "connect", Label: "connect"}, a.Connect}, {phase{Class: "tls", Label: "TLS"}, a.TLS},
		{phase{Class: "wait", Label: "first byte"}, wait}, {last, rest},
	} {
		if p.took == 0 {
			continue
		}
		p.X, p.Width, p.Took = x, float64(p.took)/float64(longest)*100, duration(p.took)
		x += p.Width
		list = append(list, p.phase)
	}
	return list
}

// place finds the neighbours of a delivery in its stream.
func (v *visit) place(sub delivery.SubscriptionID, d *delivery.Delivery) (p place, err error) {
	var row *dbgen.ConsoleNeighboursRow
	err = v.read(func(tx pgx.Tx) (err error) {
		row, err = queries.ConsoleNeighbours(v.ctx, tx, &dbgen.ConsoleNeighboursParams{SubscriptionID: int64(sub), Asset: d.Asset, Seq: int64(d.ID)})
		return err
	})
	if err != nil {
		return p, err
	}
	p.Before = row.Before
	for _, n := range []struct {
		id int64
		to **delivery.Delivery
	}{{row.Previous, &p.Previous}, {row.Next, &p.Next}, {row.Head, &p.Head}} {
		if n.id == 0 || n.id == int64(d.ID) {
			continue
		}
		found, err := v.Store.Delivery(v.ctx, sub, delivery.ID(n.id))
		if errors.Is(err, delivery.ErrNotFound) { // pruned meanwhile
			continue
		}
		if err != nil {
			return p, err
		}
		*n.to = &found
	}
	if p.Head != nil && p.Head.ID > d.ID {
		p.Head = nil // this one is settled, and the stream has gone on
	}
	return p, nil
}
