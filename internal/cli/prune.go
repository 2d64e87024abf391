package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/retention"
	"github.com/postlane-go/postlane/internal/settings"
)

func (a *app) pruneCommand() *cli.Command {
	return &cli.Command{
		Name: "prune", Usage: "remove what has been kept for long enough; a server with the same settings does it by itself",
		Description: "Works in small transactions, oldest first, and can be interrupted: what is removed stays removed.\n" +
			"Kept in any case is what is pending, in flight or holding its stream, and the event of it or of a dead letter.\n" +
			"Sessions of the console and signing secrets that are over go in any case.",
		Flags:  append(settings.Flags(settings.NeedDatabase|settings.NeedKeep), jsonFlag()),
		Action: a.each(a.prune),
	}
}

func (a *app) prune(ctx context.Context, c *cli.Command) error {
	if _, err := arguments(c); err != nil {
		return err
	}
	s, pool, store, err := a.open(ctx, c, settings.NeedDatabase|settings.NeedKeep)
	if err != nil {
		return err
	}
	defer pool.Close()
	var removed retention.Removed
	err = a.record(ctx, "prune", "", func(e *audit.Entry) (err error) {
		removed, err = retention.Once(ctx, retention.Config{Pool: pool, Store: store, Keep: s.Keep})
		e.Detail = fmt.Sprintf("%d deliveries, %d events, %d messages, %d entries of this log", removed.Deliveries, removed.Events, removed.Messages, removed.Audit)
		return err
	})
	printed := a.print(c, removed, func(w io.Writer) {
		fmt.Fprintf(w, "removed %d deliveries with %d attempts, %d events, %d messages of the outbox, %d entries of the audit log, %d sessions, %d signing secrets\n",
			removed.Deliveries, removed.Attempts, removed.Events, removed.Messages, removed.Audit, removed.Sessions, removed.Secrets)
		if s.Keep == (retention.Keep{}) {
			fmt.Fprintln(w, "deliveries, events, messages and the audit log are kept for ever; see: postlane prune -help")
		}
	})
	if err != nil {
		return fmt.Errorf("stopped early; run it again to go on: %w", err)
	}
	return printed
}
