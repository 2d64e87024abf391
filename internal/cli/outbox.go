package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/settings"
	"github.com/postlane-go/postlane/internal/view"
	"github.com/postlane-go/postlane/outbox"
)

func (a *app) outboxCommand() *cli.Command {
	flags := func(more ...cli.Flag) []cli.Flag {
		return append(append(settings.Flags(settings.NeedDatabase), jsonFlag()), more...)
	}
	return &cli.Command{
		Name: "outbox", Usage: "messages that are staged and relayed",
		Commands: []*cli.Command{
			{
				Name: "list", Usage: "list messages of a state, what has waited longest first",
				Flags: flags(
					&cli.StringFlag{Name: "state", Value: string(outbox.StatePending), Usage: "pending, scheduled, parked or published"},
					&cli.StringFlag{Name: "queue", Usage: "of this queue (default: all)"},
					&cli.IntFlag{Name: "limit", Value: 50, Usage: "most to list"},
					&cli.StringFlag{Name: "after", Usage: "go on after this place in the list, as the list before named it"}),
				Action: a.each(a.withOutbox(a.outboxList)),
			},
			{
				Name: "retry", Usage: "return parked messages to their queues, or let failed ones be tried at once", ArgsUsage: "MESSAGE...",
				Flags: flags(
					&cli.BoolFlag{Name: "all-parked", Usage: "every parked message instead of named ones"},
					&cli.StringFlag{Name: "queue", Usage: "with -all-parked: of this queue alone"}),
				Action: a.withOutbox(a.outboxRetry),
			},
			{
				Name: "pending", Usage: "tell how much is not published, and for how long", Flags: flags(),
				Action: a.each(a.withOutbox(a.outboxPending)),
			},
		},
	}
}

func (a *app) withOutbox(f func(context.Context, *cli.Command, *outbox.Postgres) error) cli.ActionFunc {
	return func(ctx context.Context, c *cli.Command) error {
		_, pool, _, err := a.open(ctx, c, settings.NeedDatabase)
		if err != nil {
			return err
		}
		defer pool.Close()
		store, err := outbox.NewPostgres(pool, outbox.StoreConfig{})
		if err != nil {
			return err
		}
		return f(ctx, c, store)
	}
}

func (a *app) outboxList(ctx context.Context, c *cli.Command, store *outbox.Postgres) error {
	if _, err := arguments(c); err != nil {
		return err
	}
	state := outbox.State(c.String("state"))
	switch state {
	case outbox.StatePending, outbox.StateScheduled, outbox.StateParked, outbox.StatePublished:
	default:
		return usage(c, "-state is %q; use pending, scheduled, parked or published", state)
	}
	limit := c.Int("limit")
	if limit < 1 || limit > 1000 {
		return usage(c, "-limit is %d; use 1 to 1000", limit)
	}
	after := c.String("after")
	list, err := store.List(ctx, outbox.ListRequest{State: state, Queue: c.String("queue"), After: after, Max: limit})
	switch {
	case errors.Is(err, outbox.ErrCursor):
		return usage(c, "-after is %q; use what the list before named", after)
	case err != nil:
		return err
	}
	next := ""
	if len(list) == limit {
		next = list[limit-1].Cursor
	}
	return a.print(c, view.NewList(list, next), func(w io.Writer) {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "SEQ\tMESSAGE\tQUEUE\tTOPIC\tATTEMPTS\tSTAGED\tERROR")
		for _, m := range list {
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%d of %d\t%s\t%.80q\n", m.Seq, m.ID, m.Queue, m.Topic, m.Attempts, m.MaxAttempts, m.StagedAt.UTC().Format(time.RFC3339), m.Error)
		}
		t.Flush()
		if next != "" {
			fmt.Fprintln(w, "more with: -after", next)
		}
	})
}

func (a *app) outboxRetry(ctx context.Context, c *cli.Command, store *outbox.Postgres) error {
	ids := c.Args().Slice()
	if c.Bool("all-parked") == (len(ids) > 0) {
		return usage(c, "needs MESSAGE... or -all-parked")
	}
	retried, missing := []string{}, 0
	err := a.record(ctx, "retry-messages", strings.Join(ids, " "), func(e *audit.Entry) (err error) {
		if len(ids) > 0 {
			retried, err = store.Retry(ctx, ids...)
			missing = len(ids) - len(retried)
		} else {
			retried, err = retryParked(ctx, store, c.String("queue"))
		}
		e.Detail = fmt.Sprintf("%d retried", len(retried))
		return err
	})
	if err != nil {
		return fmt.Errorf("after %d retried: %w", len(retried), err)
	}
	if err := a.print(c, map[string]any{"retried": append([]string{}, retried...)}, func(w io.Writer) {
		for _, id := range retried {
			fmt.Fprintln(w, "retried", id)
		}
		fmt.Fprintf(w, "%d retried\n", len(retried))
	}); err != nil {
		return err
	}
	if missing > 0 {
		return fmt.Errorf("%d of %d are not there, or neither parked nor failed", missing, len(ids))
	}
	return nil
}

// retryParked returns every parked message of a queue, or ("") of all, in batches that are
// kept as soon as they are done.
func retryParked(ctx context.Context, store *outbox.Postgres, queue string) (retried []string, err error) {
	const batch = 500
	for {
		some, err := store.RetryParked(ctx, queue, batch)
		retried = append(retried, some...)
		if err != nil || len(some) < batch {
			return retried, err
		}
	}
}

func (a *app) outboxPending(ctx context.Context, c *cli.Command, store *outbox.Postgres) error {
	if _, err := arguments(c); err != nil {
		return err
	}
	b, err := store.Pending(ctx)
	if err != nil {
		return err
	}
	v := map[string]any{
		"pending": b.Pending, "oldest_age_seconds": b.OldestAge.Seconds(), "scheduled": b.Scheduled, "parked": b.Parked, "waiting_queues": b.Waiting,
	}
	return a.print(c, v, func(w io.Writer) {
		fmt.Fprintf(w, "pending    %s, the oldest for %v\nscheduled  %s\nparked     %s\nwaiting    %s queues, for the next attempt of a failed message\n",
			counted(b.Pending), b.OldestAge.Round(time.Millisecond), counted(b.Scheduled), counted(b.Parked), counted(b.Waiting))
	})
}

// counted prints a number that was counted up to outbox.MaxCounted.
func counted(n int64) string {
	if n >= outbox.MaxCounted {
		return fmt.Sprintf("%d or more", n)
	}
	return strconv.FormatInt(n, 10)
}
