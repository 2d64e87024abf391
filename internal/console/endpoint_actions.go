package console

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/dbgen"
	"github.com/postlane-go/postlane/internal/view"
)

func (v *visit) pauseEndpoint() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	reason := v.form("reason")
	v.note(reason)
	if _, err := v.Store.Pause(v.ctx, sub.ID, reason); err != nil {
		return err
	}
	return v.see(v.back(endpointPath(sub.ID)), "Paused. No request to the endpoint starts any more; what is pending stays, in order.")
}

func (v *visit) enableEndpoint() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	if _, err := v.Store.Enable(v.ctx, sub.ID); err != nil {
		return err
	}
	return v.see(v.back(endpointPath(sub.ID)), "Enabled. What is pending goes out in order.")
}

// rotateSecret answers with the page and the new secret on it: nothing shows it again.
func (v *visit) rotateSecret() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	seconds, err := strconv.Atoi(v.form("overlap"))
	if err != nil {
		return invalid("Choose for how long the secret before goes on signing.")
	}
	overlap := time.Duration(seconds) * time.Second
	v.note(fmt.Sprintf("overlap %v", overlap))
	secret, err := v.Store.RotateSecret(v.ctx, sub.ID, overlap)
	if err != nil {
		return err
	}
	if sub, err = v.Store.Subscription(v.ctx, sub.ID); err != nil {
		return err
	}
	body, err := v.endpointView(sub)
	if err != nil {
		return err
	}
	body.Secret, body.Overlap, body.Signing = secret.Reveal(), overlap, &view.SigningExplained
	return v.page("endpoint", "endpoints", sub.URL, body)
}

// testEndpoint sends one request past the queue and answers with what came of it.
func (v *visit) testEndpoint() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	result, err := v.Store.SendTest(v.ctx, v.Sender, sub.ID)
	if err != nil {
		return err
	}
	v.note(string(result.Outcome))
	body, err := v.endpointView(sub)
	if err != nil {
		return err
	}
	body.Test = &testView{Result: result, Mark: stateOf("failed"), Body: view.Printable(result.Body), Header: headerText(result.Header)}
	if result.Delivered() {
		body.Test.Mark = stateOf("delivered")
	}
	if result.Err != nil && v.operator() {
		body.Test.Error = result.Err.Error()
	}
	return v.page("endpoint", "endpoints", sub.URL, body)
}

func headerText(h http.Header) string {
	var b strings.Builder
	if err := h.Write(&b); err != nil {
		return ""
	}
	return view.Printable([]byte(strings.ReplaceAll(b.String(), "\r\n", "\n")))
}

type deletingView struct {
	Sub     *delivery.Subscription
	Waiting *dbgen.ConsoleWaitingRow
	Most    int
}

// deletingEndpoint tells what deleting would do, and asks.
func (v *visit) deletingEndpoint() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	body := deletingView{Sub: sub, Most: waitingMost}
	err = v.read(func(tx pgx.Tx) (err error) {
		body.Waiting, err = queries.ConsoleWaiting(v.ctx, tx, &dbgen.ConsoleWaitingParams{SubscriptionID: int64(sub.ID), Max: waitingMost + 1})
		return err
	})
	if err != nil {
		return err
	}
	return v.page("deleting", "endpoints", "Delete an endpoint", body)
}

func (v *visit) deleteEndpoint() error {
	sub, err := v.subscription()
	if err != nil {
		return err
	}
	if v.form("sure") != "yes" {
		return invalid("Tick the box that says you are sure.")
	}
	v.note(short(200, sub.URL))
	if err := v.Store.DeleteSubscription(v.ctx, sub.ID); err != nil {
		return err
	}
	return v.see(Root+"endpoints", "Deleted. No request to the endpoint starts any more; what was pending is being discarded.")
}
