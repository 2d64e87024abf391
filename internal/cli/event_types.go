package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/eventschema"
	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/settings"
	"github.com/postlane-go/postlane/internal/view"
)

const eventTypeArg = "NAME"

func (a *app) eventTypesCommand() *cli.Command {
	flags := func(more ...cli.Flag) []cli.Flag {
		return append(append(settings.Flags(settings.NeedDatabase), jsonFlag(), &cli.StringFlag{Name: "tenant", Usage: "whose it is (required)"}), more...)
	}
	named := func(f func(context.Context, *cli.Command, *delivery.Store, string, string) error) cli.ActionFunc {
		return a.withStore(settings.NeedDatabase, []string{eventTypeArg}, func(ctx context.Context, c *cli.Command, store *delivery.Store, args []string) error {
			if c.String("tenant") == "" {
				return usage(c, "needs -tenant")
			}
			return f(ctx, c, store, c.String("tenant"), args[0])
		})
	}
	return &cli.Command{
		Name: "event-types", Usage: "what events of a type are, and what their payloads look like",
		Commands: []*cli.Command{
			{
				Name: "list", Usage: "list a tenant's event types, without their schemas", Flags: flags(
					&cli.IntFlag{Name: "limit", Value: 50, Usage: "most to list"},
					&cli.StringFlag{Name: "after", Usage: "go on after this event type"}),
				Action: a.withStore(settings.NeedDatabase, nil, a.eventTypeList),
			},
			{Name: "show", Usage: "show an event type with its schema", ArgsUsage: eventTypeArg, Flags: flags(), Action: named(a.eventTypeShow)},
			{
				Name: "put", Usage: "write an event type, in place of the one of its name: what is not given is not kept", ArgsUsage: eventTypeArg, Flags: flags(
					&cli.StringFlag{Name: "description", Usage: "for people"},
					&cli.StringFlag{Name: "schema-file", Usage: "read the JSON Schema of payloads from this file (default: none)"},
					&cli.BoolFlag{Name: "validate", Usage: "have the HTTP API refuse payloads that do not meet the schema"},
					&cli.BoolFlag{Name: "deprecated", Usage: "no new subscriber should want it"}),
				Action: named(a.eventTypePut),
			},
			{Name: "delete", Usage: "delete an event type; its events stay, and more may come", ArgsUsage: eventTypeArg, Flags: flags(), Action: named(a.eventTypeDelete)},
		},
	}
}

func (a *app) eventTypeList(ctx context.Context, c *cli.Command, store *delivery.Store, _ []string) error {
	limit := c.Int("limit")
	switch {
	case c.String("tenant") == "":
		return usage(c, "needs -tenant")
	case limit < 1 || limit > delivery.MaxEventTypes:
		return usage(c, "-limit is %d; use 1 to %d", limit, delivery.MaxEventTypes)
	}
	list, err := store.EventTypes(ctx, c.String("tenant"), delivery.EventTypePage{After: c.String("after"), Limit: limit})
	if err != nil {
		return err
	}
	next := ""
	if len(list) == limit {
		next = list[limit-1].Name
	}
	views := make([]view.EventType, len(list))
	for i, t := range list {
		views[i] = view.NewEventType(t)
	}
	return a.print(c, view.NewList(views, next), func(w io.Writer) {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "NAME\tVALIDATED\tDEPRECATED\tUPDATED\tDESCRIPTION")
		for _, v := range views {
			fmt.Fprintf(t, "%s\t%t\t%t\t%s\t%s\n", v.Name, v.Validate, v.Deprecated, v.UpdatedAt.Format(time.RFC3339), v.Description)
		}
		t.Flush()
		if next != "" {
			fmt.Fprintln(w, "more with: -after", next)
		}
	})
}

func (a *app) eventTypeShow(ctx context.Context, c *cli.Command, store *delivery.Store, tenant, name string) error {
	t, err := store.EventType(ctx, tenant, name)
	if err != nil {
		return err
	}
	return a.printEventType(c, t)
}

func (a *app) eventTypePut(ctx context.Context, c *cli.Command, store *delivery.Store, tenant, name string) error {
	t := &delivery.EventType{Tenant: tenant, Name: name, Description: c.String("description"), Validate: c.Bool("validate"), Deprecated: c.Bool("deprecated")}
	if file := c.String("schema-file"); file != "" {
		schema, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := eventschema.Check(schema); err != nil {
			return fmt.Errorf("the schema in %s cannot be used: %w", file, err)
		}
		t.Schema = string(schema)
	}
	err := a.record(ctx, "put-event-type", name, func(e *audit.Entry) (err error) {
		e.Tenant = tenant
		t, err = store.PutEventType(ctx, *t)
		return err
	})
	if err != nil {
		return err
	}
	return a.printEventType(c, t)
}

func (a *app) eventTypeDelete(ctx context.Context, c *cli.Command, store *delivery.Store, tenant, name string) error {
	err := a.record(ctx, "delete-event-type", name, func(e *audit.Entry) error {
		e.Tenant = tenant
		return store.DeleteEventType(ctx, tenant, name)
	})
	if err != nil {
		return err
	}
	return a.print(c, map[string]any{"name": name, "deleted": true}, func(w io.Writer) { fmt.Fprintln(w, "deleted", name) })
}

func (a *app) printEventType(c *cli.Command, t *delivery.EventType) error {
	v := view.NewEventTypeWithSchema(t)
	return a.print(c, v, func(w io.Writer) {
		fmt.Fprintf(w, "name          %s\ndescription   %s\nvalidated     %t\ndeprecated    %t\nupdated       %s\n", v.Name, v.Description, v.Validate, v.Deprecated, v.UpdatedAt.Format(time.RFC3339Nano))
		if t.Schema != "" {
			fmt.Fprintf(w, "schema\n%s\n", t.Schema)
		}
	})
}
