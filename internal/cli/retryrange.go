package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/settings"
	"github.com/postlane-go/postlane/internal/view"
)

// retryBatch is how many dead letters one transaction revives.
const retryBatch = 200

func (a *app) retryRangeCommand() *cli.Command {
	at := cli.TimestampConfig{Layouts: []string{time.RFC3339Nano}}
	return &cli.Command{
		Name: "retry-range", Usage: "return a range of dead letters to pending, in the order of their streams", ArgsUsage: subscriptionArg,
		Flags: append(settings.Flags(settings.NeedDatabase), jsonFlag(),
			&cli.BoolFlag{Name: "dry-run", Usage: "count them only"},
			&cli.StringFlag{Name: "event-type", Usage: "exactly this type"},
			&cli.StringFlag{Name: "asset", Usage: "exactly this asset; empty: those without one"},
			&cli.StringFlag{Name: "reason", Usage: "died of exactly this, as deliveries list shows it"},
			&cli.TimestampFlag{Name: "since", Usage: "written at or after this time (RFC 3339)", Config: at},
			&cli.TimestampFlag{Name: "until", Usage: "written before this time (RFC 3339)", Config: at},
			&cli.IntFlag{Name: "max", Usage: "most to retry (default: all)"}),
		Action: a.withStore(settings.NeedDatabase, []string{subscriptionArg}, a.retryRange),
	}
}

// retryRange works in batches, each kept as soon as it is done, until the end, -max or an
// interrupt; and tells in any case what it did.
func (a *app) retryRange(ctx context.Context, c *cli.Command, store *delivery.Store, args []string) error {
	sub, err := delivery.ParseSubscriptionID(args[0])
	if err != nil {
		return err
	}
	owner, err := store.Subscription(ctx, sub)
	if err != nil {
		return err
	}
	most := c.Int("max")
	if c.IsSet("max") && most < 1 {
		return usage(c, "-max is %d; use 1 or more", most)
	}
	letters := delivery.DeadLetters{
		EventType: c.String("event-type"), Asset: c.String("asset"), OfAsset: c.IsSet("asset"), Reason: c.String("reason"), OfReason: c.IsSet("reason"), Since: c.Timestamp("since"), Until: c.Timestamp("until"),
	}
	did := view.RetriedRange{DryRun: c.Bool("dry-run")}
	if did.Matched, err = store.CountDead(ctx, sub, letters, 0); err != nil {
		return err
	}
	if !did.DryRun {
		err = a.record(ctx, "retry-deliveries", sub.String(), func(e *audit.Entry) error {
			e.Tenant = owner.Tenant
			err := reviveRange(ctx, store, sub, letters, most, &did)
			e.Detail = fmt.Sprintf("%d match, %d retried, %d skipped", did.Matched, did.Retried, did.Skipped)
			return err
		})
	}
	printed := a.print(c, did, func(w io.Writer) {
		fmt.Fprintf(w, "%d dead letters match", did.Matched)
		if !did.DryRun {
			fmt.Fprintf(w, "; %d are retried, %d were skipped (their event is no longer kept, or somebody else was quicker)", did.Retried, did.Skipped)
		}
		fmt.Fprintln(w)
	})
	if err != nil {
		return fmt.Errorf("stopped after %d of %d: %w", did.Retried+did.Skipped, did.Matched, err)
	}
	return printed
}

// reviveRange revives up to most (0: all) dead letters of a range, and counts into did.
func reviveRange(ctx context.Context, store *delivery.Store, sub delivery.SubscriptionID, letters delivery.DeadLetters, most int, did *view.RetriedRange) error {
	for after, more := delivery.ID(0), true; more; {
		batch := retryBatch
		if most > 0 {
			batch = min(batch, most-did.Retried-did.Skipped)
		}
		if batch == 0 {
			break
		}
		r, err := store.ReviveBatch(ctx, sub, letters, after, batch, "cli: "+person())
		if err != nil {
			return err
		}
		did.Retried, did.Skipped = did.Retried+r.Revived, did.Skipped+r.Skipped
		after, more = r.Last, r.More
	}
	return nil
}
