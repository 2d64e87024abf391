package cli

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/server"
	"github.com/postlane-go/postlane/internal/settings"
)

const serveNeeds = settings.NeedDatabase | settings.NeedSecretKey | settings.NeedListen | settings.NeedKeep | settings.NeedRelay

func (a *app) serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "run the server: dispatcher, HTTP, and, if configured, a relay of the outbox",
		Flags: append(settings.Flags(serveNeeds), dispatcherFlags()...),
		Action: func(ctx context.Context, c *cli.Command) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			s, err := settings.Read(c, serveNeeds)
			if err != nil {
				return usageErrors(err)
			}
			databases, err := a.databases(ctx, s)
			defer func() {
				for _, d := range databases {
					d.Pool.Close()
					if d.Replica != nil {
						d.Replica.Close()
					}
				}
			}()
			if err != nil {
				return err
			}
			config, err := dispatcherConfig(c, s)
			if err != nil {
				return err
			}
			supervised := newSupervised(ctx, a.logger())
			defer supervised.end()
			return server.Run(ctx, server.Config{
				Settings: s, Databases: databases, Dispatcher: config, Logger: a.logger(), Ready: supervised.ready,
			})
		},
	}
}

// databases are those that the server works with. An only one has to answer now.
func (a *app) databases(ctx context.Context, s settings.Settings) (list []server.Database, err error) {
	open := newPool
	if len(s.Databases) == 1 {
		open = connect
	}
	for _, d := range s.Databases {
		pool, err := open(ctx, d.URL)
		if err != nil {
			return list, err
		}
		one := server.Database{Name: d.Name, Pool: pool}
		list = append(list, one)
		if one.Store, err = newStore(s, pool); err != nil {
			return list, err
		}
		if d.ListenURL != "" {
			if one.Listen, err = pgx.ParseConfig(d.ListenURL); err != nil {
				return list, err
			}
		}
		if d.ReplicaURL != "" {
			if one.Replica, err = newPool(ctx, d.ReplicaURL); err != nil {
				return list, err
			}
		}
		list[len(list)-1] = one
	}
	return list, nil
}

func dispatcherFlags() []cli.Flag {
	env := func(name string) cli.ValueSourceChain { return cli.EnvVars(settings.Env(name)) }
	return []cli.Flag{
		&cli.IntFlag{Name: "max-in-flight", Value: 256, Usage: "most requests open at a time", Sources: env("max-in-flight")},
		&cli.IntFlag{Name: "max-in-flight-per-subscription", HideDefault: true, Usage: "most of them for one subscription (default: a quarter)", Sources: env("max-in-flight-per-subscription")},
		&cli.IntFlag{Name: "ahead", HideDefault: true, Usage: "deliveries of a stream that are sent behind a claimed one without another claim; negative: none (default: 64)", Sources: env("ahead")},
		&cli.DurationFlag{Name: "timeout", HideDefault: true, Usage: "most that an endpoint may take to answer (default: 10s)", Sources: env("timeout")},
		&cli.DurationFlag{Name: "lease", HideDefault: true, Usage: "how long a claim lasts that is not renewed; longer than -timeout (default: 30s)", Sources: env("lease")},
		&cli.DurationFlag{Name: "poll", HideDefault: true, Usage: "how often to look without being woken (default: 1s)", Sources: env("poll")},
		&cli.DurationFlag{Name: "grace", HideDefault: true, Usage: "how long open requests may take to finish at shutdown (default: 15s)", Sources: env("grace")},
		&cli.StringFlag{Name: "listen-database-url", Usage: "where to listen for wake-ups, if -database-url leads through a transaction pooler", Sources: env("listen-database-url")},
		&cli.BoolFlag{Name: "no-breaker", Usage: "try an endpoint that is not there with every delivery, and not with one probe at a time", Sources: env("no-breaker")},
		&cli.BoolFlag{Name: "no-listen", Usage: "poll only", Sources: env("no-listen")},
	}
}

func dispatcherConfig(c *cli.Command, s settings.Settings) (delivery.Config, error) {
	config := delivery.Config{
		MaxInFlight: c.Int("max-in-flight"), MaxInFlightPerSubscription: c.Int("max-in-flight-per-subscription"), Ahead: c.Int("ahead"),
		Lease: c.Duration("lease"), Poll: c.Duration("poll"), Grace: c.Duration("grace"), NoBreaker: c.Bool("no-breaker"), NoListen: c.Bool("no-listen"),
	}
	guard, err := s.Guard()
	if err != nil {
		return config, err
	}
	if config.Sender, err = sender.New(sender.Config{Guard: guard, Timeout: c.Duration("timeout")}); err != nil {
		return config, err
	}
	return config, nil
}
