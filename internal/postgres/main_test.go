package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/internal/postgres"
)

// childEnv makes this test binary a process that starts a server in the named
// directory, prints its process and URL, and then waits to be killed.
const childEnv = "POSTLANE_TEST_SERVER_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		serve(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func serve(dir string) {
	server, err := postgres.Start(context.Background(), postgres.Config{Dir: dir, NoSync: true})
	if err != nil {
		fmt.Printf("%q\n", err) // the test reads one line
		os.Exit(1)
	}
	fmt.Println(server.URL("postgres"))
	bufio.NewReader(os.Stdin).ReadByte()
}
