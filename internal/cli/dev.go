package cli

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/internal/dev"
	"github.com/postlane-go/postlane/internal/settings"
)

func (a *app) devCommand() *cli.Command {
	return &cli.Command{
		Name:  "dev",
		Usage: "run all of it on this machine, with sample events and a receiver that judges what arrives",
		Flags: append(settings.Flags(settings.NeedDatabase),
			&cli.StringFlag{Name: "dir", Value: ".postlane", Usage: "where the private PostgreSQL and the keys are kept"},
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:8080", Usage: "the address that the server listens on", Sources: cli.EnvVars(settings.Env("listen"))},
			&cli.BoolFlag{Name: "once", Usage: "send -events, wait until all are settled, print the verdict as JSON, and exit 0 only if it is clean"},
			&cli.IntFlag{Name: "events", Value: 10_000, Usage: "with -once: how many events"},
			&cli.IntFlag{Name: "streams", Value: 500, Usage: "with -once: over how many streams"},
			&cli.IntFlag{Name: "workers", Value: 1, Usage: "how many processes dispatch"},
		),
		Action: func(ctx context.Context, c *cli.Command) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			if err := onlyOne(c); err != nil {
				return err
			}
			config := dev.Config{
				Dir: c.String("dir"), DatabaseURL: c.String("database-url"), Listen: c.String("listen"), Once: c.Bool("once"),
				Events: c.Int("events"), Streams: c.Int("streams"), Workers: c.Int("workers"), Out: a.out, Err: a.err,
			}
			if config.Events < 1 || config.Streams < 1 || config.Workers < 1 || config.Workers > 16 {
				return usage(c, "-events and -streams are 1 or more, -workers 1 to 16")
			}
			return dev.Run(ctx, config)
		},
	}
}
