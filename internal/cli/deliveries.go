package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/settings"
	"github.com/postlane-go/postlane/internal/view"
)

const deliveryArg = "DELIVERY"

func (a *app) deliveriesCommand() *cli.Command {
	flags := append(settings.Flags(settings.NeedDatabase), jsonFlag())
	act := func(name, usage, done, action string, f func(context.Context, *cli.Command, *delivery.Store, delivery.SubscriptionID, delivery.ID) error, more ...cli.Flag) *cli.Command {
		return &cli.Command{
			Name: name, Usage: usage, ArgsUsage: subscriptionArg + " " + deliveryArg + "...", Flags: append(append([]cli.Flag{}, flags...), more...),
			Action: func(ctx context.Context, c *cli.Command) error { return a.deliveryAct(ctx, c, done, action, f) },
		}
	}
	return &cli.Command{
		Name: "deliveries", Usage: "events on their way to endpoints, and what became of them",
		Commands: []*cli.Command{
			{
				Name: "list", Usage: "list a subscription's deliveries, newest first", ArgsUsage: subscriptionArg, Flags: append(append([]cli.Flag{}, flags...),
					&cli.StringFlag{Name: "state", Usage: "comma-separated: pending, delivering, delivered, dead, discarded (default: all)"},
					&cli.StringFlag{Name: "event-type", Usage: "exactly this type"},
					&cli.StringFlag{Name: "asset", Usage: "exactly this asset; empty: those without one"},
					&cli.TimestampFlag{Name: "since", Usage: "written at or after this time (RFC 3339)", Config: cli.TimestampConfig{Layouts: []string{time.RFC3339Nano}}},
					&cli.TimestampFlag{Name: "until", Usage: "written before this time (RFC 3339)", Config: cli.TimestampConfig{Layouts: []string{time.RFC3339Nano}}},
					&cli.IntFlag{Name: "limit", Value: 50, Usage: "most to list"},
					&cli.StringFlag{Name: "before", Usage: "go on before this delivery"},
					&cli.BoolFlag{Name: "oldest", Usage: "oldest first; go on with -after"},
					&cli.StringFlag{Name: "after", Usage: "with -oldest: go on after this delivery"}),
				Action: a.withStore(settings.NeedDatabase, []string{subscriptionArg}, a.deliveryList),
			},
			{
				Name: "show", Usage: "show a delivery and its attempts", ArgsUsage: subscriptionArg + " " + deliveryArg, Flags: flags,
				Action: a.withStore(settings.NeedDatabase, []string{subscriptionArg, deliveryArg}, a.deliveryShow),
			},
			act("retry", "return dead letters to pending", "retried", "retry-delivery", func(ctx context.Context, _ *cli.Command, s *delivery.Store, sub delivery.SubscriptionID, id delivery.ID) error {
				return s.ReviveBy(ctx, sub, id, "cli: "+person())
			}),
			a.retryRangeCommand(),
			act("discard", "give deliveries up, so that their streams go on", "discarded", "discard-delivery", func(ctx context.Context, c *cli.Command, s *delivery.Store, sub delivery.SubscriptionID, id delivery.ID) error {
				return s.Discard(ctx, sub, id, c.String("reason"))
			}, &cli.StringFlag{Name: "reason", Usage: "why, for whoever reads the log (required)"}),
			act("release", "let streams go on behind the dead letters that hold them", "released", "release-delivery", func(ctx context.Context, _ *cli.Command, s *delivery.Store, sub delivery.SubscriptionID, id delivery.ID) error {
				return s.ReleaseHeld(ctx, sub, id)
			}),
		},
	}
}

func (a *app) deliveryList(ctx context.Context, c *cli.Command, store *delivery.Store, args []string) error {
	sub, err := delivery.ParseSubscriptionID(args[0])
	if err != nil {
		return err
	}
	limit := c.Int("limit")
	if limit < 1 || limit > 1000 {
		return usage(c, "-limit is %d; use 1 to 1000", limit)
	}
	f := delivery.Filter{EventType: c.String("event-type"), Asset: c.String("asset"), OfAsset: c.IsSet("asset"), Since: c.Timestamp("since"), Until: c.Timestamp("until")}
	if text := c.String("state"); text != "" {
		for name := range strings.SplitSeq(text, ",") {
			state, err := delivery.ParseDeliveryState(name)
			if err != nil {
				return usage(c, "%v", err)
			}
			f.States = append(f.States, state)
		}
	}
	read, on := store.Deliveries, "before"
	if c.Bool("oldest") {
		read, on = store.DeliveriesOldest, "after"
	}
	if wrong := map[string]string{"before": "after", "after": "before"}[on]; c.IsSet(wrong) {
		return usage(c, "-%s does not go with this order; use -%s", wrong, on)
	}
	var from delivery.ID
	if text := c.String(on); text != "" {
		if from, err = delivery.ParseID(text); err != nil {
			return err
		}
	}
	if _, err := store.Subscription(ctx, sub); err != nil {
		return err
	}
	page, err := read(ctx, sub, f, from, limit)
	if err != nil {
		return err
	}
	next := ""
	if page.Next != 0 {
		next = page.Next.String()
	}
	views := make([]view.Delivery, len(page.Deliveries))
	for i := range page.Deliveries {
		views[i] = view.NewDelivery(sub, &page.Deliveries[i])
	}
	return a.print(c, view.NewList(views, next), func(w io.Writer) {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "DELIVERY\tSTATE\tATTEMPTS\tTYPE\tASSET\tCREATED\tDUE\tREASON")
		for _, v := range views {
			state := v.State
			if v.Held {
				state += " (holds its stream)"
			}
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", v.ID, state, v.Attempts, v.EventType, mark(v.Asset), v.CreatedAt.Format(time.RFC3339), markTime(v.DueAt), mark(v.Reason))
		}
		t.Flush()
		if !page.Searched.IsZero() {
			fmt.Fprintln(w, "searched as far as", page.Searched.UTC().Format(time.RFC3339))
		}
		if next != "" {
			fmt.Fprintf(w, "more with: -%s %s\n", on, next)
		}
	})
}

func (a *app) deliveryShow(ctx context.Context, c *cli.Command, store *delivery.Store, args []string) error {
	sub, id, err := parseDelivery(args[0], args[1])
	if err != nil {
		return err
	}
	d, err := store.Delivery(ctx, sub, id)
	if err != nil {
		return err
	}
	attempts, err := store.Attempts(ctx, sub, id)
	if err != nil {
		return err
	}
	revivals, err := store.Revivals(ctx, sub, id)
	if err != nil {
		return err
	}
	origin, err := store.ReplayOf(ctx, sub, id)
	if err != nil {
		return err
	}
	v := view.NewDeliveryWithAttempts(sub, &d, attempts, revivals, origin)
	return a.print(c, v, func(w io.Writer) {
		fmt.Fprintf(w, "delivery   %s of %s\nevent      %s (%s)\nasset      %s\nstate      %s %s\ncreated    %s\ndue        %s\nsettled    %s\n\n",
			v.ID, v.Subscription, v.EventID, v.EventType, mark(v.Asset), v.State, mark(v.Reason), v.CreatedAt.Format(time.RFC3339Nano), markTime(v.DueAt), markTime(v.SettledAt))
		if v.Replay != nil {
			fmt.Fprintf(w, "replay     %s\n\n", *v.Replay)
		}
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "ATTEMPT\tRETRIED BY\tSTARTED\tOUTCOME\tSTATUS\tMS\tANSWER")
		for _, x := range v.History {
			status, took := "-", "-"
			if x.Status != nil {
				status = fmt.Sprint(*x.Status)
			}
			if x.DurationMS != nil {
				took = fmt.Sprint(*x.DurationMS)
			}
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%.60q\n", x.Number, retriedBy(&x), x.StartedAt.Format(time.RFC3339Nano), x.Outcome, status, took, mark(x.Answer))
		}
		t.Flush()
	})
}

// retriedBy says who had retried the dead letter before an attempt, if anybody had.
func retriedBy(a *view.Attempt) string {
	if a.Manual && a.RetriedBy == nil {
		return "somebody"
	}
	return mark(a.RetriedBy)
}

// deliveryAct acts on each of the deliveries named, goes on after a failure, and fails if
// any did.
func (a *app) deliveryAct(ctx context.Context, c *cli.Command, done, action string, f func(context.Context, *cli.Command, *delivery.Store, delivery.SubscriptionID, delivery.ID) error) error {
	args := c.Args().Slice()
	if len(args) < 2 {
		return usage(c, "needs %s and at least one %s", subscriptionArg, deliveryArg)
	}
	_, pool, store, err := a.open(ctx, c, settings.NeedDatabase)
	if err != nil {
		return err
	}
	defer pool.Close()
	acted, failed := []string{}, map[string]string{}
	for _, text := range args[1:] {
		sub, id, err := parseDelivery(args[0], text)
		if err == nil {
			err = a.record(ctx, action, sub.String()+"/"+id.String(), func(e *audit.Entry) error {
				owner, err := store.Subscription(ctx, sub)
				if err != nil {
					return err
				}
				e.Tenant, e.Detail = owner.Tenant, c.String("reason")
				return f(ctx, c, store, sub, id)
			})
		}
		if err != nil {
			failed[text] = err.Error()
			fmt.Fprintf(a.err, "postlane: %s: %v\n", text, err)
			continue
		}
		acted = append(acted, text)
	}
	if err := a.print(c, map[string]any{done: acted, "failed": failed}, func(w io.Writer) {
		for _, id := range acted {
			fmt.Fprintln(w, done, id)
		}
	}); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d failed", len(failed), len(args)-1)
	}
	return nil
}

func parseDelivery(subText, idText string) (delivery.SubscriptionID, delivery.ID, error) {
	sub, err := delivery.ParseSubscriptionID(subText)
	if err != nil {
		return 0, 0, err
	}
	id, err := delivery.ParseID(idText)
	return sub, id, err
}

func markTime(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339)
}

func (a *app) streamsCommand() *cli.Command {
	return &cli.Command{
		Name: "streams", Usage: "what is waiting, stream by stream",
		Commands: []*cli.Command{{
			Name: "list", Usage: "list a subscription's streams that have something waiting", ArgsUsage: subscriptionArg,
			Flags: append(settings.Flags(settings.NeedDatabase), jsonFlag(),
				&cli.IntFlag{Name: "limit", Value: 50, Usage: "most to list"},
				&cli.StringFlag{Name: "after", Usage: "go on after this asset"}),
			Action: a.withStore(settings.NeedDatabase, []string{subscriptionArg}, a.streamList),
		}},
	}
}

func (a *app) streamList(ctx context.Context, c *cli.Command, store *delivery.Store, args []string) error {
	sub, err := delivery.ParseSubscriptionID(args[0])
	if err != nil {
		return err
	}
	limit := c.Int("limit")
	if limit < 1 || limit > 1000 {
		return usage(c, "-limit is %d; use 1 to 1000", limit)
	}
	var after *string
	if c.IsSet("after") {
		text := c.String("after")
		after = &text
	}
	owner, err := store.Subscription(ctx, sub)
	if err != nil {
		return err
	}
	list, err := store.Streams(ctx, sub, after, limit)
	if err != nil {
		return err
	}
	next := ""
	if len(list) == limit {
		next = list[limit-1].Asset
	}
	views := make([]view.Stream, len(list))
	for i := range list {
		views[i] = view.NewStream(owner, &list[i])
	}
	return a.print(c, view.NewList(views, next), func(w io.Writer) {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "ASSET\tDEPTH\tHEAD\tSTATE\tSINCE\tATTEMPTS\tDUE\tREASON")
		for _, v := range views {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%d\t%s\t%s\n", mark(v.Asset), v.Depth, v.Head.ID, v.State, v.Since.Format(time.RFC3339), v.Head.Attempts, markTime(v.Head.DueAt), v.Reason)
		}
		t.Flush()
	})
}
