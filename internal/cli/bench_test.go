package cli_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/cli"
)

func TestBenchNamesItsScenarios(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var out, errOut bytes.Buffer
	code := cli.Run(t.Context(), []string{"postlane", "bench", "warp"}, strings.NewReader(""), &out, &errOut)
	is.Equal(code, 2)
	is.Equal(out.String(), "")
	for _, name := range []string{"claim-flat", "throughput", "enqueue", "latency", "neighbour", "hot-stream", "held-snapshot", "memory", "soak", "idle"} {
		is.True(strings.Contains(errOut.String(), name)) // the scenario is there
	}
}
