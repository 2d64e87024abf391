// Command with runs a command, such as `go test`, with the PostgreSQL of the
// tests up from its start to its end, and says which one that is.
//
//	go run ./internal/pgtest/with go test ./...
//
// Without a command it keeps the server up until it is interrupted, for looking
// into a database that a failed test left.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/postlane-go/postlane/internal/pgtest/server"
)

func main() {
	// A command in the same terminal is interrupted too, and ends by itself.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)

	shared, err := server.Use()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "tests use", shared)
	if len(os.Args) == 1 {
		fmt.Printf("psql '%s'\n", shared.URL)
		<-interrupted
		return
	}
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err = cmd.Start(); err == nil {
		go func() {
			for signal := range interrupted {
				if signal == syscall.SIGTERM { // goes to one process only
					_ = cmd.Process.Signal(signal)
				}
			}
		}()
		err = cmd.Wait()
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(max(exit.ExitCode(), 1)) // -1 for one that a signal ended
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
