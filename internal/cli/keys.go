package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/settings"
	"github.com/postlane-go/postlane/internal/view"
)

func (a *app) keysCommand() *cli.Command {
	flags := append(settings.Flags(settings.NeedDatabase), jsonFlag())
	with := func(more ...cli.Flag) []cli.Flag { return append(append([]cli.Flag{}, flags...), more...) }
	return &cli.Command{
		Name: "keys", Usage: "who may call the HTTP API",
		Commands: []*cli.Command{
			{
				Name: "create", Usage: "make a key and print it, once", Flags: with(
					&cli.StringFlag{Name: "name", Usage: "who or what will use it (required)"},
					&cli.StringFlag{Name: "tenant", Usage: "whose things it may see (this or -operator is required)"},
					&cli.BoolFlag{Name: "operator", Usage: "it may see those of all tenants"},
					&cli.StringFlag{Name: "scope", Value: string(keys.Write), Usage: "read, or write, which includes read"}),
				Action: a.withKeys(nil, a.keyCreate),
			},
			{
				Name: "list", Usage: "list keys, without their texts", Flags: with(
					&cli.StringFlag{Name: "tenant", Usage: "of this tenant (default: all)"},
					&cli.IntFlag{Name: "limit", Value: 50, Usage: "most to list"},
					&cli.StringFlag{Name: "after", Usage: "go on after this key"}),
				Action: a.each(a.withKeys(nil, a.keyList)),
			},
			{
				Name: "revoke", Usage: "end a key, at once and everywhere", ArgsUsage: "KEY", Flags: flags,
				Action: a.withKeys([]string{"KEY"}, a.keyRevoke),
			},
		},
	}
}

// withKeys wraps an action on the keys.
func (a *app) withKeys(names []string, f func(context.Context, *cli.Command, *keys.Store, []string) error) cli.ActionFunc {
	return func(ctx context.Context, c *cli.Command) error {
		args, err := arguments(c, names...)
		if err != nil {
			return err
		}
		_, pool, _, err := a.open(ctx, c, settings.NeedDatabase)
		if err != nil {
			return err
		}
		defer pool.Close()
		return f(ctx, c, keys.New(pool, ""), args)
	}
}

func (a *app) keyCreate(ctx context.Context, c *cli.Command, store *keys.Store, _ []string) error {
	tenant := c.String("tenant")
	if (tenant == "") != c.Bool("operator") {
		return usage(c, "needs -tenant or -operator, and not both")
	}
	var key keys.Key
	var text string
	err := a.record(ctx, "create-key", "", func(e *audit.Entry) (err error) {
		e.Tenant, e.Detail = tenant, c.String("scope")
		key, text, err = store.Create(ctx, c.String("name"), tenant, keys.Scope(c.String("scope")))
		e.Target = key.ID
		return err
	})
	if errors.Is(err, keys.ErrInvalid) {
		return usage(c, "%v", err)
	}
	if err != nil {
		return err
	}
	v := view.KeyWithText{Key: view.NewKey(&key), Text: text}
	return a.print(c, v, func(w io.Writer) {
		fmt.Fprintf(w, "%s\n\nThis is key %s. It is shown only now; send it as: Authorization: Bearer KEY\n", text, v.ID)
	})
}

func (a *app) keyList(ctx context.Context, c *cli.Command, store *keys.Store, _ []string) error {
	limit := c.Int("limit")
	if limit < 1 || limit > 1000 {
		return usage(c, "-limit is %d; use 1 to 1000", limit)
	}
	list, err := store.List(ctx, c.String("tenant"), c.String("after"), limit)
	if err != nil {
		return err
	}
	next := ""
	if len(list) == limit {
		next = list[limit-1].ID
	}
	views := make([]view.Key, len(list))
	for i := range list {
		views[i] = view.NewKey(&list[i])
	}
	return a.print(c, view.NewList(views, next), func(w io.Writer) {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "ID\tBEGINS\tTENANT\tSCOPE\tLAST USED\tREVOKED\tCREATED\tNAME")
		for _, v := range views {
			tenant := mark(v.Tenant)
			if v.Operator {
				tenant = "(operator)"
			}
			fmt.Fprintf(t, "%s\t%s…\t%s\t%s\t%s\t%s\t%s\t%s\n", v.ID, v.Hint, tenant, v.Scope, markTime(v.LastUsedAt), markTime(v.RevokedAt), v.CreatedAt.Format(time.RFC3339), v.Name)
		}
		t.Flush()
		if next != "" {
			fmt.Fprintln(w, "more with: -after", next)
		}
	})
}

func (a *app) keyRevoke(ctx context.Context, c *cli.Command, store *keys.Store, args []string) error {
	var key keys.Key
	err := a.record(ctx, "revoke-key", args[0], func(e *audit.Entry) (err error) {
		key, err = store.Revoke(ctx, args[0])
		e.Tenant = key.Tenant
		return err
	})
	if err != nil {
		return err
	}
	v := view.NewKey(&key)
	return a.print(c, v, func(w io.Writer) { fmt.Fprintf(w, "%s (%s) is revoked\n", v.ID, v.Name) })
}
