package delivery_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests, or, where a test started this binary once more, what that
// test wants of another process.
func TestMain(m *testing.M) {
	if task := os.Getenv(childTask); task != "" {
		os.Exit(runChild(task))
	}
	goleak.VerifyTestMain(m)
}
