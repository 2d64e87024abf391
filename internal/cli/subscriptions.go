package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/delivery/signing"
	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/settings"
	"github.com/postlane-go/postlane/internal/view"
)

// withStore wraps an action that needs the store and exactly the named arguments.
func (a *app) withStore(need settings.Need, names []string, f func(ctx context.Context, c *cli.Command, store *delivery.Store, args []string) error) cli.ActionFunc {
	return func(ctx context.Context, c *cli.Command) error {
		args, err := arguments(c, names...)
		if err != nil {
			return err
		}
		_, pool, store, err := a.open(ctx, c, need)
		if err != nil {
			return err
		}
		defer pool.Close()
		return f(ctx, c, store, args)
	}
}

const subscriptionArg = "SUBSCRIPTION"

func (a *app) subscriptionsCommand() *cli.Command {
	flags := func(need settings.Need, more ...cli.Flag) []cli.Flag {
		return append(append(settings.Flags(need), jsonFlag()), more...)
	}
	setState := func(name, usage string, f func(context.Context, *delivery.Store, delivery.SubscriptionID, *cli.Command) (*delivery.Subscription, error), more ...cli.Flag) *cli.Command {
		return &cli.Command{
			Name: name, Usage: usage, ArgsUsage: subscriptionArg, Flags: flags(settings.NeedDatabase, more...),
			Action: a.withStore(settings.NeedDatabase, []string{subscriptionArg}, a.changing(name+"-subscription",
				func(ctx context.Context, c *cli.Command, store *delivery.Store, e *audit.Entry, id delivery.SubscriptionID) error {
					e.Detail = c.String("reason")
					sub, err := f(ctx, store, id, c)
					if err != nil {
						return err
					}
					return a.printSubscription(c, sub)
				})),
		}
	}
	return &cli.Command{
		Name: "subscriptions", Usage: "endpoints and what they want",
		Commands: []*cli.Command{
			{
				DisableSliceFlagSeparator: true, // a header's value may hold a comma
				Name:                      "create", Usage: "add an endpoint; prints its signing secret, once", Flags: flags(settings.NeedSecretKey, append(settingFlags(), &cli.StringFlag{Name: "tenant", Usage: "whose events it gets (required)"})...),
				Action: a.withStore(settings.NeedSecretKey, nil, a.subscriptionCreate),
			},
			{
				Name: "list", Usage: "list subscriptions", Flags: flags(settings.NeedDatabase,
					&cli.StringFlag{Name: "tenant", Usage: "of this tenant (default: all)"},
					&cli.IntFlag{Name: "limit", Value: 50, Usage: "most to list"},
					&cli.StringFlag{Name: "after", Usage: "go on after this subscription"}),
				Action: a.each(a.withStore(settings.NeedDatabase, nil, a.subscriptionList)),
			},
			{
				Name: "show", Usage: "show a subscription", ArgsUsage: subscriptionArg, Flags: flags(settings.NeedDatabase),
				Action: a.withStore(settings.NeedDatabase, []string{subscriptionArg}, a.subscriptionShow),
			},
			{
				DisableSliceFlagSeparator: true,
				Name:                      "update", Usage: "change what is given, and nothing else", ArgsUsage: subscriptionArg, Flags: flags(settings.NeedSecretKey, settingFlags()...),
				Action: a.withStore(settings.NeedSecretKey, []string{subscriptionArg}, a.changing("update-subscription", a.subscriptionUpdate)),
			},
			setState("pause", "stop delivering; what is pending stays, in order", func(ctx context.Context, s *delivery.Store, id delivery.SubscriptionID, c *cli.Command) (*delivery.Subscription, error) {
				return s.Pause(ctx, id, c.String("reason"))
			}, &cli.StringFlag{Name: "reason", Usage: "why, for people"}),
			setState("enable", "deliver again, with no failures counted", func(ctx context.Context, s *delivery.Store, id delivery.SubscriptionID, _ *cli.Command) (*delivery.Subscription, error) {
				return s.Enable(ctx, id)
			}),
			{
				Name: "delete", Usage: "delete a subscription; what is pending is discarded, the log stays", ArgsUsage: subscriptionArg, Flags: flags(settings.NeedDatabase),
				Action: a.withStore(settings.NeedDatabase, []string{subscriptionArg}, a.changing("delete-subscription", a.subscriptionDelete)),
			},
			{
				Name: "rotate-secret", Usage: "make a new signing secret and print it, once", ArgsUsage: subscriptionArg, Flags: flags(settings.NeedSecretKey,
					&cli.DurationFlag{Name: "overlap", Value: 24 * time.Hour, Usage: "how long the old secret goes on signing beside it, at most 168h"}),
				Action: a.withStore(settings.NeedSecretKey, []string{subscriptionArg}, a.changing("rotate-secret", a.subscriptionRotate)),
			},
			a.replayCommand(),
			{
				Name: "test", Usage: "send one test request now, past the queue", ArgsUsage: subscriptionArg, Flags: flags(settings.NeedSecretKey),
				Action: a.withStore(settings.NeedSecretKey, []string{subscriptionArg}, a.changing("test-subscription", a.subscriptionTest)),
			},
		},
	}
}

func settingFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "url", Usage: "the endpoint"},
		&cli.StringFlag{Name: "description", Usage: "for people"},
		&cli.StringFlag{Name: "event-types", Usage: "comma-separated: exact (invoice.paid), by prefix (invoice.*) or * (default: *)"},
		&cli.StringSliceFlag{Name: "condition", Usage: "`PATH OP VALUE`, which the payload has to meet, such as 'data.amount gte 100'; repeat for more; replaces those there were"},
		&cli.BoolFlag{Name: "no-conditions", Usage: "want every payload again"},
		&cli.StringFlag{Name: "on-dead", Usage: "what a dead letter does to its stream: continue or hold (default: continue)"},
		&cli.IntFlag{Name: "max-attempts", HideDefault: true, Usage: "failed attempts after which a delivery is dead (default: 8)"},
		&cli.IntFlag{Name: "subscription-max-in-flight", HideDefault: true, Usage: "most requests open to the endpoint (default: the dispatcher's limit)"},
		&cli.StringFlag{Name: "rate-limit", Usage: "most requests in a time: 100/s, 10/m, 10/30s; empty: no limit (default)"},
		&cli.BoolFlag{Name: "v1a", Usage: "sign with an Ed25519 key too, whose public half verifies"},
		&cli.BoolFlag{Name: "thin", Usage: "send which event there is and where its payload is, not the payload; -thin=false sends it again"},
		&cli.StringMapFlag{Name: "header", Usage: "NAME=VALUE, sent with every request; repeat for more; replaces those there were"},
		&cli.BoolFlag{Name: "no-headers", Usage: "send none of its own any more"},
		&cli.IntFlag{Name: "disable-after", HideDefault: true, Usage: "dead deliveries in a row that disable it; -1: never (default: 20)"},
	}
}

// applySettings writes the flags that were given into s.
func applySettings(c *cli.Command, s *delivery.Settings) error {
	if c.IsSet("url") {
		s.URL = c.String("url")
	}
	if c.IsSet("description") {
		text := c.String("description")
		s.Description = &text
	}
	if c.IsSet("event-types") {
		s.EventTypes = strings.Split(c.String("event-types"), ",")
	}
	if err := applyConditions(c, s); err != nil {
		return err
	}
	if c.IsSet("on-dead") {
		s.OnDead = delivery.OnDead(c.String("on-dead"))
	}
	if c.IsSet("max-attempts") {
		s.MaxAttempts = c.Int("max-attempts")
	}
	if c.IsSet("subscription-max-in-flight") {
		s.MaxInFlight = c.Int("subscription-max-in-flight")
	}
	if c.IsSet("v1a") {
		s.V1a = c.Bool("v1a")
	}
	if c.IsSet("thin") {
		s.Thin = c.Bool("thin")
	}
	if c.IsSet("header") {
		s.Headers = c.StringMap("header")
	} else if c.Bool("no-headers") {
		s.Headers = map[string]string{}
	}
	if c.IsSet("disable-after") {
		s.DisableAfter = c.Int("disable-after")
	}
	if c.IsSet("rate-limit") {
		var err error
		if s.RateLimit, err = delivery.ParseRate(c.String("rate-limit")); err != nil {
			return err
		}
	}
	return nil
}

func applyConditions(c *cli.Command, s *delivery.Settings) error {
	if c.IsSet("condition") || c.Bool("no-conditions") {
		s.Conditions = nil
	}
	for _, text := range c.StringSlice("condition") {
		condition, err := delivery.ParseCondition(text)
		if err != nil {
			return err
		}
		s.Conditions = append(s.Conditions, condition)
	}
	return nil
}

func (a *app) subscriptionCreate(ctx context.Context, c *cli.Command, store *delivery.Store, _ []string) error {
	if c.String("tenant") == "" || c.String("url") == "" {
		return usage(c, "needs -tenant and -url")
	}
	var s delivery.Settings
	if err := applySettings(c, &s); err != nil {
		return err
	}
	var sub *delivery.Subscription
	var secret signing.Secret
	err := a.record(ctx, "create-subscription", "", func(e *audit.Entry) (err error) {
		e.Tenant = c.String("tenant")
		if sub, secret, err = store.CreateSubscription(ctx, e.Tenant, s); err == nil {
			e.Target = sub.ID.String()
		}
		return err
	})
	if err != nil {
		return err
	}
	v := view.SubscriptionWithSecret{Subscription: view.NewSubscription(sub), Secret: secret.Reveal(), Signing: view.SigningExplained}
	return a.print(c, v, func(w io.Writer) {
		writeSubscription(w, v.Subscription)
		fmt.Fprintf(w, "secret         %s\n\nThe secret is shown only now. Requests are signed as Standard Webhooks has it:\n%s.\nSigned is: %s.\nThe timestamp is %s.\n",
			v.Secret, v.Signing.Scheme, v.Signing.Signed, v.Signing.Timestamp)
	})
}

func (a *app) subscriptionList(ctx context.Context, c *cli.Command, store *delivery.Store, _ []string) error {
	limit := c.Int("limit")
	if limit < 1 || limit > 1000 {
		return usage(c, "-limit is %d; use 1 to 1000", limit)
	}
	var after delivery.SubscriptionID
	if text := c.String("after"); text != "" {
		var err error
		if after, err = delivery.ParseSubscriptionID(text); err != nil {
			return err
		}
	}
	list, err := store.Subscriptions(ctx, c.String("tenant"), after, limit)
	if err != nil {
		return err
	}
	next := ""
	if len(list) == limit {
		next = list[limit-1].ID.String()
	}
	views := make([]view.Subscription, len(list))
	for i, s := range list {
		views[i] = view.NewSubscription(s)
	}
	return a.print(c, view.NewList(views, next), func(w io.Writer) {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "ID\tTENANT\tSTATE\tFAILURES\tEVENT TYPES\tURL")
		for _, v := range views {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\n", v.ID, v.Tenant, v.State, v.FailureCount, strings.Join(v.EventTypes, ","), v.URL)
		}
		t.Flush()
		if next != "" {
			fmt.Fprintln(w, "more with: -after", next)
		}
	})
}

func (a *app) subscriptionShow(ctx context.Context, c *cli.Command, store *delivery.Store, args []string) error {
	id, err := delivery.ParseSubscriptionID(args[0])
	if err != nil {
		return err
	}
	sub, err := store.Subscription(ctx, id)
	if err != nil {
		return err
	}
	return a.printSubscription(c, sub)
}

func (a *app) subscriptionUpdate(ctx context.Context, c *cli.Command, store *delivery.Store, _ *audit.Entry, id delivery.SubscriptionID) error {
	sub, err := store.UpdateSubscription(ctx, id, func(s *delivery.Settings) error {
		return applySettings(c, s)
	})
	if err != nil {
		return err
	}
	return a.printSubscription(c, sub)
}

func (a *app) subscriptionDelete(ctx context.Context, c *cli.Command, store *delivery.Store, _ *audit.Entry, id delivery.SubscriptionID) error {
	if err := store.DeleteSubscription(ctx, id); err != nil {
		return err
	}
	return a.print(c, map[string]string{"deleted": id.String()}, func(w io.Writer) {
		fmt.Fprintf(w, "deleted %s; what was pending is discarded in the background and stays in the log\n", id)
	})
}

func (a *app) subscriptionRotate(ctx context.Context, c *cli.Command, store *delivery.Store, e *audit.Entry, id delivery.SubscriptionID) error {
	overlap := c.Duration("overlap")
	e.Detail = fmt.Sprintf("overlap %v", overlap)
	secret, err := store.RotateSecret(ctx, id, overlap)
	if err != nil {
		return err
	}
	sub, err := store.Subscription(ctx, id)
	if err != nil {
		return err
	}
	v := view.RotatedSecret{
		ID: id.String(), Secret: secret.Reveal(), Overlap: int(overlap.Seconds()), PublicKey: view.NewSubscription(sub).PublicKey, Signing: view.SigningExplained,
	}
	return a.print(c, v, func(w io.Writer) {
		fmt.Fprintf(w, "secret  %s\n\nIt is shown only now. The old secret signs beside it for %v.\n", secret.Reveal(), overlap)
	})
}

func (a *app) subscriptionTest(ctx context.Context, c *cli.Command, store *delivery.Store, e *audit.Entry, id delivery.SubscriptionID) error {
	s, err := settings.Read(c, settings.NeedSecretKey)
	if err != nil {
		return err
	}
	guard, err := s.Guard()
	if err != nil {
		return err
	}
	snd, err := sender.New(sender.Config{Guard: guard})
	if err != nil {
		return err
	}
	defer snd.Close()
	result, err := store.SendTest(ctx, snd, id)
	if err != nil {
		return err
	}
	e.Detail = string(result.Outcome)
	v := view.NewTest(&result)
	if err := a.print(c, v, func(w io.Writer) {
		status := "no answer"
		if v.Status != nil {
			status = fmt.Sprint("status ", *v.Status)
		}
		fmt.Fprintf(w, "%s (%s) after %d ms\n%s\n", v.Meaning, status, v.DurationMS, v.Answer)
	}); err != nil {
		return err
	}
	if !v.Delivered {
		return fmt.Errorf("the test request failed: %s", v.Meaning)
	}
	return nil
}

func (a *app) printSubscription(c *cli.Command, sub *delivery.Subscription) error {
	v := view.NewSubscription(sub)
	return a.print(c, v, func(w io.Writer) { writeSubscription(w, v) })
}

func writeSubscription(w io.Writer, v view.Subscription) {
	row := func(name string, value any) { fmt.Fprintf(w, "%-14s %v\n", name, value) }
	row("id", v.ID)
	row("tenant", v.Tenant)
	row("url", v.URL)
	if v.Description != nil {
		row("description", *v.Description)
	}
	row("event types", strings.Join(v.EventTypes, ", "))
	for _, c := range v.Conditions {
		row("condition", fmt.Sprintf("%s %s %s", c.Path, c.Op, c.Value))
	}
	state := v.State + " since " + v.StateSince.Format(time.RFC3339)
	if v.StateReason != nil {
		state += " (" + *v.StateReason + ")"
	}
	row("state", state)
	row("on dead", v.OnDead)
	row("max attempts", v.MaxAttempts)
	inFlight, disableAfter := "as many as the dispatcher's limit", "never"
	if v.MaxInFlight != nil {
		inFlight = strconv.Itoa(*v.MaxInFlight)
	}
	if v.DisableAfter != nil {
		disableAfter = fmt.Sprintf("after %d dead deliveries in a row", *v.DisableAfter)
	}
	row("in flight", inFlight)
	if v.RateLimit != nil {
		row("rate limit", *v.RateLimit)
	}
	row("disabled", disableAfter)
	row("failures", v.FailureCount)
	if v.Thin {
		row("thin", "no payload is sent")
	}
	if b := v.Breaker; b != nil {
		row("breaker", fmt.Sprintf("open since %s, after %d failed requests; next probe at %s",
			b.OpenSince.Format(time.RFC3339), b.Failures, b.NextProbeAt.Format(time.RFC3339)))
	}
	if len(v.HeaderNames) > 0 {
		row("headers", strings.Join(v.HeaderNames, ", "))
	}
	if v.PublicKey != nil {
		row("public key", *v.PublicKey)
	}
}
