package console

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/dbgen"
)

const (
	// deadMost is how many of an endpoint's newest dead letters are sorted by reason.
	deadMost = 1000
	// deadEndpoints is how many endpoints a page of dead letters has.
	deadEndpoints = 25
	// retryMost and retryTime bound what one press of a button revives.
	retryMost  = 5000
	retryBatch = 200
	retryTime  = 10 * time.Second
)

type deadView struct {
	Groups []deadGroup
	Next   string
	Most   int
	// Sub is the endpoint that is looked at; nil for all.
	Sub *delivery.Subscription
}

type deadGroup struct {
	*dbgen.ConsoleDeadSubscriptionsRow
	Reasons []*dbgen.ConsoleDeadReasonsRow
	// Total counts the letters; More says that there are more than were sorted.
	Total int64
	More  bool
}

// Sub is for links.
func (g deadGroup) Sub() delivery.SubscriptionID { return delivery.SubscriptionID(g.ID) }

// dead lists the dead letters by endpoint and reason.
func (v *visit) dead() error {
	after := int64(0)
	if text := v.query("after"); text != "" {
		id, err := delivery.ParseSubscriptionID(text)
		if err != nil {
			return err
		}
		after = int64(id)
	}
	body := deadView{Most: deadMost}
	if text := v.query("endpoint"); text != "" {
		var err error
		if body.Sub, err = v.subscriptionOf(text); err != nil {
			return err
		}
	}
	err := v.read(func(tx pgx.Tx) (err error) {
		var subs []*dbgen.ConsoleDeadSubscriptionsRow
		if s := body.Sub; s != nil {
			subs = append(subs, &dbgen.ConsoleDeadSubscriptionsRow{ID: int64(s.ID), Tenant: s.Tenant, Url: s.URL, State: string(s.State)})
		} else {
			subs, err = queries.ConsoleDeadSubscriptions(v.ctx, tx, &dbgen.ConsoleDeadSubscriptionsParams{Tenant: v.tenant(), Max: deadEndpoints + 1, After: after})
		}
		if err != nil {
			return err
		}
		if len(subs) > deadEndpoints {
			subs = subs[:deadEndpoints]
			body.Next = v.path("dead", "after", delivery.SubscriptionID(subs[deadEndpoints-1].ID).String())
		}
		for _, s := range subs {
			reasons, err := queries.ConsoleDeadReasons(v.ctx, tx, &dbgen.ConsoleDeadReasonsParams{SubscriptionID: s.ID, Max: deadMost + 1})
			if err != nil {
				return err
			}
			g := deadGroup{ConsoleDeadSubscriptionsRow: s, Reasons: reasons}
			for _, r := range reasons {
				g.Total += r.Letters
			}
			g.More = g.Total > deadMost
			if g.Total > 0 {
				body.Groups = append(body.Groups, g)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return v.page("dead", "dead", "Dead letters", body)
}

type deadLettersView struct {
	Sub    *delivery.Subscription
	Reason string
	Rows   []*dbgen.ConsoleDeadOfRow
	Count  int64
	Most   int
	Next   string
	First  string
}

// deadLetters lists those of one endpoint and reason, to choose from.
func (v *visit) deadLetters() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	body := deadLettersView{Sub: sub, Reason: v.query("reason"), Most: waitingMost}
	after := int64(0)
	if text := v.query("after"); text != "" {
		id, err := delivery.ParseID(text)
		if err != nil {
			return err
		}
		after = int64(id)
	}
	here := "dead/" + sub.ID.String()
	err = v.read(func(tx pgx.Tx) (err error) {
		body.Count, err = queries.ConsoleDeadCount(v.ctx, tx, &dbgen.ConsoleDeadCountParams{SubscriptionID: int64(sub.ID), Reason: body.Reason, Max: waitingMost + 1})
		if err != nil {
			return err
		}
		body.Rows, err = queries.ConsoleDeadOf(v.ctx, tx, &dbgen.ConsoleDeadOfParams{SubscriptionID: int64(sub.ID), After: after, Reason: body.Reason, Max: rowsPerPage + 1})
		return err
	})
	if err != nil {
		return err
	}
	if len(body.Rows) > rowsPerPage {
		body.Rows = body.Rows[:rowsPerPage]
		body.Next = v.path(here, "reason", body.Reason, "after", delivery.ID(body.Rows[rowsPerPage-1].Seq).String())
	}
	if after > 0 {
		body.First = v.path(here, "reason", body.Reason)
	}
	return v.page("deadletters", "dead", "Dead letters", body)
}

type retryingView struct {
	Sub *delivery.Subscription
	// Reason chooses all that died of it, unless single letters are chosen.
	Reason  string
	IDs     []delivery.ID
	Count   int64
	Most    int
	Batch   int
	Stopped bool

	// Done says that this is an answer: so many were retried, so many could not be.
	Done             bool
	Retried, Skipped int
	After            delivery.ID
	Left             int64
}

// retryingDead shows how many a retry would be about, and asks.
func (v *visit) retryingDead() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	body := retryingView{Sub: sub, Reason: v.query("reason"), Most: waitingMost, Batch: retryMost}
	if body.IDs, err = chosen(v.r.URL.Query()["letter"]); err != nil {
		return err
	}
	body.Count = int64(len(body.IDs))
	if len(body.IDs) == 0 {
		if body.Count, err = v.deadCount(sub, body.Reason); err != nil {
			return err
		}
	}
	return v.page("retrying", "dead", "Retry dead letters", body)
}

func chosen(texts []string) ([]delivery.ID, error) {
	var ids []delivery.ID
	for _, text := range texts {
		id, err := delivery.ParseID(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) > 10*rowsPerPage {
		return nil, invalid("Choose fewer letters at a time.")
	}
	return ids, nil
}

func (v *visit) deadCount(sub *delivery.Subscription, reason string) (n int64, err error) {
	err = v.read(func(tx pgx.Tx) (err error) {
		n, err = queries.ConsoleDeadCount(v.ctx, tx, &dbgen.ConsoleDeadCountParams{SubscriptionID: int64(sub.ID), Reason: reason, Max: waitingMost + 1})
		return err
	})
	return n, err
}

// retryDead revives what was chosen, in the order of the streams, and tells how far it
// got. What dies again meanwhile lies before that and is not met twice.
func (v *visit) retryDead() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	body := retryingView{Sub: sub, Reason: v.form("reason"), Most: waitingMost, Batch: retryMost, Done: true}
	if body.IDs, err = chosen(v.r.PostForm["letter"]); err != nil {
		return err
	}
	if text := v.form("after"); text != "" {
		if body.After, err = delivery.ParseID(text); err != nil {
			return err
		}
	}
	defer func() {
		v.note(fmt.Sprintf("%d retried, %d skipped; reason: %s", body.Retried, body.Skipped, short(200, body.Reason)))
	}()
	if len(body.IDs) > 0 {
		slices.Sort(body.IDs)
		err = v.reviveAll(&body, body.IDs)
	} else {
		err = v.reviveByReason(&body)
	}
	if err != nil && body.Retried == 0 {
		return err
	}
	if err != nil { // what is done is done, and has to be told
		v.Logger.Error("retrying dead letters stopped early", "subscription", sub.ID, "retried", body.Retried, "error", err)
		body.Stopped = true
	}
	if len(body.IDs) == 0 {
		if body.Left, err = v.deadCount(sub, body.Reason); err != nil {
			return err
		}
	}
	return v.page("retrying", "dead", "Retry dead letters", body)
}

// reviveByReason revives batch after batch, until none is left or the time is over.
func (v *visit) reviveByReason(body *retryingView) error {
	letters := delivery.DeadLetters{Reason: body.Reason, OfReason: true}
	for began := time.Now(); time.Since(began) < retryTime && body.Retried+body.Skipped < retryMost; {
		did, err := v.Store.ReviveBatch(v.ctx, body.Sub.ID, letters, body.After, retryBatch, v.who.Label())
		if err != nil {
			return err
		}
		body.Retried, body.Skipped, body.After = body.Retried+did.Revived, body.Skipped+did.Skipped, did.Last
		if !did.More {
			body.After = 0
			return nil
		}
	}
	return nil
}

func (v *visit) reviveAll(body *retryingView, ids []delivery.ID) error {
	for _, id := range ids {
		err := v.Store.ReviveBy(v.ctx, body.Sub.ID, id, v.who.Label())
		switch {
		case err == nil:
			body.Retried++
		case errors.Is(err, delivery.ErrNotDead), errors.Is(err, delivery.ErrNotFound):
			body.Skipped++ // somebody else was quicker, or its event is no longer kept
		default:
			return err
		}
		body.After = id
	}
	return nil
}

// From is the letter after which the next press goes on, "" if it would find none.
func (r retryingView) From() string {
	if r.After == 0 {
		return ""
	}
	return r.After.String()
}
