package cli

import "github.com/urfave/cli/v3"

// Commands is the whole command line, for those who describe it.
func Commands() *cli.Command { return (&app{}).root() }
