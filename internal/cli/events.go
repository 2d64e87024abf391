package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/settings"
	"github.com/postlane-go/postlane/internal/view"
)

func (a *app) eventsCommand() *cli.Command {
	flags := append(settings.Flags(settings.NeedDatabase), jsonFlag(), &cli.StringFlag{Name: "tenant", Usage: "whose event it is (required)"})
	return &cli.Command{
		Name: "events", Usage: "what happened",
		Commands: []*cli.Command{
			{
				Name: "send", Usage: "write an event, which goes to every subscription that it matches", Flags: append(flags,
					&cli.StringFlag{Name: "type", Usage: "its type, such as invoice.paid (required)"},
					&cli.StringFlag{Name: "asset", Usage: "the entity that it is about, whose events stay in order"},
					&cli.StringFlag{Name: "id", Usage: "its identity: the same id again is the same event (default: a new one)"},
					&cli.StringFlag{Name: "payload", Usage: "the payload (default: standard input, or -file)"},
					&cli.StringFlag{Name: "file", Usage: "read the payload from this file"},
					&cli.StringFlag{Name: "content-type", Usage: "the payload's (default: application/json)"},
					&cli.TimestampFlag{Name: "deliver-after", Usage: "send it not before this `TIME`, such as 2030-01-31T09:00:00Z, at most 365 days ahead (default: at once)", Config: cli.TimestampConfig{Layouts: []string{time.RFC3339}}}),
				Action: a.eventSend,
			},
			{
				Name: "show", Usage: "show an event, without its payload", ArgsUsage: "EVENT", Flags: flags,
				Action: a.withStore(settings.NeedDatabase, []string{"EVENT"}, a.eventShow),
			},
			{
				Name: "payload", Usage: "write an event's payload to standard output, byte for byte", ArgsUsage: "EVENT", Flags: flags,
				Action: a.withStore(settings.NeedDatabase, []string{"EVENT"}, a.eventPayload),
			},
		},
	}
}

func (a *app) eventSend(ctx context.Context, c *cli.Command) error {
	if _, err := arguments(c); err != nil {
		return err
	}
	payload, err := a.payload(c)
	if err != nil {
		return err
	}
	_, pool, _, err := a.open(ctx, c, settings.NeedDatabase)
	if err != nil {
		return err
	}
	defer pool.Close()
	e := delivery.Event{
		ID: c.String("id"), Tenant: c.String("tenant"), Type: c.String("type"), Asset: c.String("asset"), ContentType: c.String("content-type"), Payload: payload,
		DeliverAfter: c.Timestamp("deliver-after"),
	}
	var enqueued []delivery.Enqueued
	err = a.record(ctx, "send-events", e.ID, func(entry *audit.Entry) error {
		entry.Tenant, entry.Detail = e.Tenant, e.Type
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
			enqueued, err = delivery.Enqueue(ctx, tx, e)
			return err
		})
		if err == nil {
			entry.Target = enqueued[0].ID
		}
		return err
	})
	if errors.Is(err, delivery.ErrInvalid) {
		return usage(c, "%v", err)
	}
	if err != nil {
		return err
	}
	got := enqueued[0]
	return a.print(c, map[string]any{"id": got.ID, "seq": got.Seq, "duplicate": got.Duplicate}, func(w io.Writer) {
		if got.Duplicate {
			fmt.Fprintf(w, "%s was written before, as the same event\n", got.ID)
			return
		}
		fmt.Fprintln(w, got.ID)
	})
}

func (a *app) payload(c *cli.Command) ([]byte, error) {
	switch {
	case c.IsSet("payload") && c.IsSet("file"):
		return nil, usage(c, "takes -payload or -file, not both")
	case c.IsSet("payload"):
		return []byte(c.String("payload")), nil
	case c.IsSet("file"):
		return os.ReadFile(c.String("file"))
	}
	payload, err := io.ReadAll(io.LimitReader(a.in, delivery.MaxPayload+1))
	if err != nil {
		return nil, fmt.Errorf("reading the payload from standard input: %w", err)
	}
	return payload, nil
}

func (a *app) eventShow(ctx context.Context, c *cli.Command, store *delivery.Store, args []string) error {
	if c.String("tenant") == "" {
		return usage(c, "needs -tenant")
	}
	e, err := store.Event(ctx, c.String("tenant"), args[0])
	if err != nil {
		return err
	}
	v := view.NewEvent(e)
	return a.print(c, v, func(w io.Writer) {
		fmt.Fprintf(w, "id            %s\ntenant        %s\ntype          %s\nasset         %s\nseq           %d\npayload       %d bytes of %s\ncreated       %s\n",
			v.ID, v.Tenant, v.Type, mark(v.Asset), v.Seq, v.PayloadSize, v.ContentType, v.CreatedAt.Format(time.RFC3339Nano))
	})
}

// mark shows a value that may be absent.
func mark(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func (a *app) eventPayload(ctx context.Context, c *cli.Command, store *delivery.Store, args []string) error {
	if c.String("tenant") == "" {
		return usage(c, "needs -tenant")
	}
	contentType, payload, err := store.EventPayload(ctx, c.String("tenant"), args[0])
	if err != nil {
		return err
	}
	return a.print(c, map[string]any{"content_type": contentType, "payload_base64": payload}, func(w io.Writer) { _, _ = w.Write(payload) })
}
