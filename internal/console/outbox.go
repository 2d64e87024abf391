package console

import (
	"errors"
	"fmt"
	"slices"

	"github.com/postlane-go/postlane/outbox"
)

type outboxView struct {
	Backlog outbox.Backlog
	States  []outboxState
	State   outbox.State
	Queue   string
	Rows    []outboxRow
	Next    string
	First   string
}

type outboxState struct {
	Name    outbox.State
	Current bool
}

type outboxRow struct {
	outbox.Listed
	Mark mark
}

// Retries reports whether the message can be retried: it is parked, or has failed and
// waits for its next attempt.
func (r outboxRow) Retries() bool {
	return r.State == outbox.StateParked || (r.State == outbox.StatePending && r.Error != "" && r.Claimant == "")
}

// maxRetryParked bounds how many parked messages one press returns to their queues.
const maxRetryParked = 5000

// outbox shows an operator the messages of a state.
func (v *visit) outbox() error {
	if !v.operator() {
		return errOperator
	}
	store, err := v.messages()
	if err != nil {
		return err
	}
	body := outboxView{State: outbox.State(v.query("state")), Queue: v.query("queue")}
	if body.State == "" {
		body.State = outbox.StateParked
	}
	states := []outbox.State{outbox.StateParked, outbox.StatePending, outbox.StateScheduled, outbox.StatePublished}
	if !slices.Contains(states, body.State) {
		return invalid(fmt.Sprintf("No state is called %q.", body.State))
	}
	for _, s := range states {
		body.States = append(body.States, outboxState{s, s == body.State})
	}
	if body.Backlog, err = store.Pending(v.ctx); err != nil {
		return err
	}
	after := v.query("after")
	list, err := store.List(v.ctx, outbox.ListRequest{State: body.State, Queue: body.Queue, After: after, Max: rowsPerPage + 1})
	if errors.Is(err, outbox.ErrCursor) {
		return invalid("The address of this page is damaged. Begin again at the first page.")
	}
	if err != nil {
		return err
	}
	address := func(after string) string {
		return v.path("outbox", "state", string(body.State), "queue", body.Queue, "after", after)
	}
	if len(list) > rowsPerPage {
		list = list[:rowsPerPage]
		body.Next = address(list[rowsPerPage-1].Cursor)
	}
	if after != "" {
		body.First = address("")
	}
	for _, m := range list {
		row := outboxRow{Listed: m, Mark: stateOf(m.State)}
		switch {
		case m.Claimant != "" && m.State == outbox.StatePending:
			row.Mark = mark{"busy", "▶", "being published"}
		case row.Retries() && m.State == outbox.StatePending:
			row.Mark = stateOf("retrying")
		case m.State == outbox.StateParked:
			row.Mark = mark{"bad", "✕", "parked"}
		case m.State == outbox.StatePublished:
			row.Mark = mark{"good", "✓", "published"}
		}
		body.Rows = append(body.Rows, row)
	}
	return v.page("outbox", "outbox", "Outbox", body)
}

// retryMessages returns a message to its queue, or every parked one of a queue or of all.
func (v *visit) retryMessages() error {
	if !v.operator() {
		return errOperator
	}
	store, err := v.messages()
	if err != nil {
		return err
	}
	var retried []string
	switch id := v.form("message"); {
	case id != "":
		v.entry.Target = short(100, id)
		retried, err = store.Retry(v.ctx, id)
	case v.form("parked") == "all":
		v.entry.Target = short(100, v.form("queue"))
		for more := true; more && err == nil && len(retried) < maxRetryParked; {
			const batch = 500
			var some []string
			some, err = store.RetryParked(v.ctx, v.form("queue"), batch)
			retried, more = append(retried, some...), len(some) == batch
		}
	default:
		return invalid("Choose a message, or all that are parked.")
	}
	v.note(fmt.Sprintf("%d retried", len(retried)))
	if err != nil && len(retried) == 0 {
		return err
	}
	if err != nil { // what is done is done, and has to be told
		v.Logger.Error("retrying parked messages stopped early", "retried", len(retried), "error", err)
	}
	n := int64(len(retried))
	notice := "Retried: " + number(n) + " " + plural(n, "message", "messages") + "."
	if n == 0 {
		notice = "Nothing was retried: it is not there any more, or neither parked nor failed."
	}
	return v.see(v.back(Root+"outbox"), notice)
}

func (v *visit) messages() (*outbox.Postgres, error) {
	return outbox.NewPostgres(v.Pool, outbox.StoreConfig{})
}
