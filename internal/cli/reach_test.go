package cli_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/matryer/is"
)

// commands are those that do what an operation of the HTTP API does.
var commands = map[string]string{
	"create-subscription": "subscriptions create", "list-subscriptions": "subscriptions list", "get-subscription": "subscriptions show",
	"update-subscription": "subscriptions update", "delete-subscription": "subscriptions delete", "pause-subscription": "subscriptions pause",
	"enable-subscription": "subscriptions enable", "rotate-secret": "subscriptions rotate-secret", "test-subscription": "subscriptions test",
	"list-deliveries": "deliveries list", "get-delivery": "deliveries show", "retry-delivery": "deliveries retry",
	"discard-delivery": "deliveries discard", "release-delivery": "deliveries release", "retry-deliveries": "deliveries retry-range",
	"replay-events": "subscriptions replay",
	"list-streams":  "streams list", "send-events": "events send", "get-event": "events show", "get-event-payload": "events payload",
	"create-key": "keys create", "list-keys": "keys list", "revoke-key": "keys revoke", "list-audit": "audit list",
	"list-event-types": "event-types list", "get-event-type": "event-types show", "put-event-type": "event-types put", "delete-event-type": "event-types delete",
	"get-metrics": "", // of the process that is asked
}

// run runs a command that needs no database.
func run(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	s := &shell{t: t, is: is.New(t)}
	return s.run("", args...)
}

// Whatever the API does, a command does too, prints JSON if asked, and explains itself.
func TestEveryOperationHasACommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	text, err := os.ReadFile("../../docs/openapi.json")
	is.NoErr(err)
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	is.NoErr(json.Unmarshal(text, &doc))
	operations := 0
	for _, item := range doc.Paths {
		for _, op := range item {
			operations++
			command, ok := commands[op.OperationID]
			if !ok {
				t.Errorf("no command does %s", op.OperationID)
			}
			if command == "" {
				continue
			}
			code, out, errOut := run(t, append(strings.Fields(command), "-help")...)
			if code != 0 || errOut != "" || !strings.Contains(out, "postlane "+command) || !strings.Contains(out, "--json") {
				t.Errorf("%s -help exits %d: %s%s", command, code, out, errOut)
			}
		}
	}
	is.Equal(operations, len(commands))
}
