// Command bench measures Postlane and its peers side by side: one PostgreSQL, one
// machine, the same 500-byte message, the same signed request, in turns. README.md
// says how to run it, and what each peer does not do.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	commands := map[string]func(context.Context, []string) error{
		"all":     runAll,     // what the file plan.go lists, in turns
		"one":     runOne,     // one measurement; prints its result as a line of JSON
		"receive": runReceive, // the endpoint of the deliveries
		"table":   runTable,   // results as tables
	}
	if len(args) > 0 {
		if c, ok := commands[args[0]]; ok {
			return c(ctx, args[1:])
		}
	}
	return errors.New("usage: bench all|one|receive|table [-flags]")
}
