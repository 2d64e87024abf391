package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/internal/bench"
	"github.com/postlane-go/postlane/internal/settings"
)

func (a *app) benchCommand() *cli.Command {
	names := make([]string, len(bench.Scenarios))
	about := make([]string, len(bench.Scenarios))
	for i, s := range bench.Scenarios {
		names[i] = s.Name
		about[i] = fmt.Sprintf("%s: %s", s.Name, s.Usage)
	}
	return &cli.Command{
		Name: "bench", Usage: "measure this machine: figures as ratios, each taken side by side in one run", ArgsUsage: "SCENARIO",
		Description: strings.Join(about, "\n"),
		Flags: append(settings.Flags(settings.NeedDatabase), jsonFlag(),
			&cli.IntFlag{Name: "n", HideDefault: true, Usage: "how many deliveries (default: the scenario's)"},
			&cli.IntFlag{Name: "streams", HideDefault: true, Usage: "over how many streams the deliveries are spread (default: the scenario's)"},
			&cli.DurationFlag{Name: "delay", HideDefault: true, Usage: "how long the receiver takes to answer"},
			&cli.DurationFlag{Name: "duration", HideDefault: true, Usage: "how long each timed part lasts (default: the scenario's)"},
			&cli.BoolFlag{Name: "full", Usage: "the sizes that take long, too"},
		),
		Action: func(ctx context.Context, c *cli.Command) error {
			args, err := arguments(c, "SCENARIO")
			if err != nil {
				return err
			}
			if err := onlyOne(c); err != nil {
				return err
			}
			for _, s := range bench.Scenarios {
				if s.Name != args[0] {
					continue
				}
				result, err := bench.Run(ctx, s, bench.Config{
					DatabaseURL: c.String("database-url"), N: c.Int("n"), Streams: c.Int("streams"), Delay: c.Duration("delay"), Duration: c.Duration("duration"), Full: c.Bool("full"), Log: a.err,
				})
				if err != nil {
					return err
				}
				e := json.NewEncoder(a.out)
				if !c.Bool("json") {
					e.SetIndent("", "  ")
				}
				return e.Encode(result)
			}
			return usage(c, "there is no scenario %q; there are %s", args[0], strings.Join(names, ", "))
		},
	}
}
