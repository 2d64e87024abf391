package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/settings"
	"github.com/postlane-go/postlane/internal/view"
)

func (a *app) replayCommand() *cli.Command {
	at := cli.TimestampConfig{Layouts: []string{time.RFC3339Nano}}
	return &cli.Command{
		Name: "replay", Usage: "send events of a time range to it once more, also those that were delivered, behind what waits", ArgsUsage: subscriptionArg,
		Flags: append(settings.Flags(settings.NeedDatabase), jsonFlag(),
			&cli.BoolFlag{Name: "dry-run", Usage: "count them only"},
			&cli.TimestampFlag{Name: "since", Usage: "written at or after this time (RFC 3339; required)", Config: at},
			&cli.TimestampFlag{Name: "until", Usage: "written before this time (default: now)", Config: at},
			&cli.StringSliceFlag{Name: "event-types", Usage: "comma-separated patterns of those that are wanted (default: all that it gets)"},
			&cli.StringFlag{Name: "asset", Usage: "exactly this asset; empty: those without one"},
			&cli.StringFlag{Name: "id", Usage: "the id of a replay that was interrupted, to go on with it (default: a new one)"}),
		Action: a.withStore(settings.NeedDatabase, []string{subscriptionArg}, a.replay),
	}
}

// replay works in batches, each kept as soon as it is done, until the end or an interrupt;
// and tells in any case what it did.
func (a *app) replay(ctx context.Context, c *cli.Command, store *delivery.Store, args []string) error {
	id, err := delivery.ParseSubscriptionID(args[0])
	if err != nil {
		return err
	}
	sub, err := store.Subscription(ctx, id)
	if err != nil {
		return err
	}
	if !c.IsSet("since") {
		return usage(c, "needs -since")
	}
	r := delivery.ReplayRequest{
		Subscription: id, ID: c.String("id"), Since: c.Timestamp("since"), Until: c.Timestamp("until"), EventTypes: c.StringSlice("event-types"),
		Asset: c.String("asset"), OfAsset: c.IsSet("asset"), By: "cli: " + person(),
	}
	count, err := store.CountReplay(ctx, r)
	if err != nil {
		return err
	}
	counted := view.NewReplayCount(r.ID, count)
	if c.Bool("dry-run") {
		return a.print(c, counted, func(w io.Writer) { fmt.Fprintln(w, counted.Detail()) })
	}
	if r.ID == "" {
		r.ID = uuid.NewString()
	}
	fmt.Fprintf(a.err, "%s; if this is interrupted, go on with: -id %s\n", counted.Detail(), r.ID)
	var out view.Replayed
	err = a.record(ctx, "replay-events", id.String(), func(e *audit.Entry) error {
		e.Tenant = sub.Tenant
		did, err := store.Replay(ctx, r)
		out = view.NewReplayed(r.ID, did)
		e.Detail = out.Detail()
		return err
	})
	printed := a.print(c, out, func(w io.Writer) { fmt.Fprintln(w, out.Detail()) })
	if err != nil {
		return fmt.Errorf("stopped after %d; go on with -id %s: %w", out.Deliveries, r.ID, err)
	}
	return printed
}
