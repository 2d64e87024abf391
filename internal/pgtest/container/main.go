// Command container runs the PostgreSQL of a test run in a container, by
// testcontainers, until its standard input ends. It prints one line of JSON:
// the URL of a database, or the error.
//
// It is a module and a program of its own: a Docker client and what it brings
// along would otherwise be requirements of every application that imports
// Postlane, and be linked into each of its test binaries.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
	"github.com/testcontainers/testcontainers-go/wait"
)

const defaultImage = "postgres:17-alpine"

// startWithin is how long a container may take until it answers: making the database
// writes to disk, which on a busy machine takes longer than a minute.
const startWithin = 150 * time.Second

func main() {
	image := cmp.Or(os.Getenv("POSTLANE_TEST_POSTGRES_IMAGE"), defaultImage)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a pull may take long
	defer cancel()

	url, err := run(ctx, image, func(url string) error {
		if err := say(map[string]string{"url": url, "image": image}); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	})
	if err != nil && url == "" {
		_ = say(map[string]string{"error": err.Error()})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run starts a container, calls use with the URL of its database, and removes
// it. The URL is empty where the container did not get that far.
func run(ctx context.Context, image string, use func(url string) error) (url string, err error) {
	container, err := postgres.Run(ctx, image,
		// A throwaway server for many small databases.
		testcontainers.WithCmd("postgres", "-c", "max_connections=300",
			"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "timezone=UTC"),
		testcontainers.WithWaitStrategyAndDeadline(startWithin,
			wait.ForLog("database system is ready to accept connections").WithOccurrence(2), // the first is of the script that makes the database
			wait.ForListeningPort("5432/tcp").WithStartupTimeout(startWithin)),
	)
	defer func() {
		if url == "" {
			sayLog(container)
		}
		if removed := testcontainers.TerminateContainer(container); err == nil {
			err = removed
		}
	}()
	if err != nil {
		return "", err
	}
	if url, err = container.ConnectionString(ctx, "sslmode=disable"); err != nil {
		return "", err
	}
	return url, use(url)
}

// sayLog writes what a container that did not start has said.
func sayLog(container *postgres.PostgresContainer) {
	if container == nil {
		return
	}
	logs, err := container.Logs(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "no log of the container:", err)
		return
	}
	defer logs.Close()
	_, _ = io.Copy(os.Stderr, logs)
}

func say(message map[string]string) error {
	return json.NewEncoder(os.Stdout).Encode(message)
}
