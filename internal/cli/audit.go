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

	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/settings"
	"github.com/postlane-go/postlane/internal/view"
)

func (a *app) auditCommand() *cli.Command {
	return &cli.Command{
		Name: "audit", Usage: "who changed what, and what came of it",
		Commands: []*cli.Command{{
			Name: "list", Usage: "list changes, newest first", Flags: append(settings.Flags(settings.NeedDatabase), jsonFlag(),
				&cli.StringFlag{Name: "tenant", Usage: "of this tenant's things (default: all)"},
				&cli.IntFlag{Name: "limit", Value: 50, Usage: "most to list"},
				&cli.StringFlag{Name: "before", Usage: "go on before this entry"}),
			Action: a.each(a.auditList),
		}},
	}
}

func (a *app) auditList(ctx context.Context, c *cli.Command) error {
	if _, err := arguments(c); err != nil {
		return err
	}
	limit := c.Int("limit")
	if limit < 1 || limit > 1000 {
		return usage(c, "-limit is %d; use 1 to 1000", limit)
	}
	var before int64
	if text := c.String("before"); text != "" {
		var err error
		if before, err = strconv.ParseInt(strings.TrimPrefix(text, "aud_"), 10, 64); err != nil {
			return usage(c, "-before is %q and not an entry", text)
		}
	}
	_, pool, _, err := a.open(ctx, c, settings.NeedDatabase)
	if err != nil {
		return err
	}
	defer pool.Close()
	list, err := audit.New(pool).List(ctx, c.String("tenant"), before, limit)
	if err != nil {
		return err
	}
	views := make([]view.Audit, len(list))
	for i := range list {
		views[i] = view.NewAudit(&list[i])
	}
	next := ""
	if len(list) == limit {
		next = views[limit-1].ID
	}
	return a.print(c, view.NewList(views, next), func(w io.Writer) {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "ENTRY\tAT\tTENANT\tACTOR\tACTION\tTARGET\tOUTCOME\tDETAIL")
		for _, v := range views {
			outcome := "not known"
			if v.Outcome != nil {
				outcome = *v.Outcome
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.ID, v.At.Format(time.RFC3339), mark(v.Tenant), v.ActorName, v.Action, mark(v.Target), outcome, mark(v.Detail))
		}
		t.Flush()
		if next != "" {
			fmt.Fprintln(w, "more with: -before", next)
		}
	})
}
