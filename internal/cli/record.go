package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/keys"
)

// record runs a change between the two halves of its entry in the audit log. A change that
// cannot be recorded is not made; one that was made is recorded even if the command was
// interrupted meanwhile. f may add to the entry. open comes first.
func (a *app) record(ctx context.Context, action, target string, f func(*audit.Entry) error) error {
	e := &audit.Entry{Actor: "cli", ActorName: person(), Action: action, Target: target}
	if err := a.audit.Begin(ctx, e); err != nil {
		return fmt.Errorf("the change could not be recorded, and was not made: %w", err)
	}
	err := f(e)
	e.Outcome = outcomeOf(err)
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := a.audit.End(finish, e); err != nil {
		fmt.Fprintf(a.err, "postlane: what came of it could not be recorded: %v\n", err)
	}
	return err
}

// person is who runs the command, as far as this machine knows.
func person() string {
	name := "somebody"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		name += "@" + host
	}
	return name
}

// outcomes are the words for errors, those of the HTTP API.
var outcomes = []struct {
	err  error
	word string
}{
	{delivery.ErrInvalid, "invalid"}, {keys.ErrInvalid, "invalid"}, {errUsage, "invalid"},
	{delivery.ErrNotFound, "not_found"}, {keys.ErrNotFound, "not_found"},
	{delivery.ErrNotDead, "not_dead"}, {delivery.ErrInFlight, "in_flight"}, {delivery.ErrNotHeld, "not_held"},
	{delivery.ErrReplayConflict, "replay_conflict"}, {delivery.ErrChanged, "changed_meanwhile"}, {delivery.ErrConflict, "event_conflict"}, {delivery.ErrBusy, "event_busy"},
	{delivery.ErrTooBroad, "too_broad"}, {context.Canceled, "interrupted"},
}

func outcomeOf(err error) string {
	if err == nil {
		return "ok"
	}
	if _, refused := errors.AsType[*guard.Refusal](err); refused {
		return "url_refused"
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.word
		}
	}
	return "failed"
}

// change is an action on one subscription.
type change func(ctx context.Context, c *cli.Command, store *delivery.Store, e *audit.Entry, id delivery.SubscriptionID) error

// changing wraps an action on the subscription that its one argument names, on record.
func (a *app) changing(action string, f change) func(context.Context, *cli.Command, *delivery.Store, []string) error {
	return func(ctx context.Context, c *cli.Command, store *delivery.Store, args []string) error {
		id, err := delivery.ParseSubscriptionID(args[0])
		if err != nil {
			return err
		}
		return a.record(ctx, action, id.String(), func(e *audit.Entry) error {
			sub, err := store.Subscription(ctx, id)
			if err != nil {
				return err
			}
			e.Tenant = sub.Tenant
			return f(ctx, c, store, e, id)
		})
	}
}
