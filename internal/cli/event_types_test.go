package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
)

func TestEventTypes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := command{t, pgtest.URL(t)}
	file := func(schema string) string {
		name := filepath.Join(t.TempDir(), "schema.json")
		is.NoErr(os.WriteFile(name, []byte(schema), 0o600))
		return name
	}
	made := c.object("event-types", "put", "-json", "-tenant", "acme", "-description", "An invoice is paid", "-validate", "-schema-file", file(`{"type":"object"}`), "invoice.paid")
	is.Equal(made["schema"], map[string]any{"type": "object"})
	is.Equal(c.object("event-types", "show", "-json", "-tenant", "acme", "invoice.paid"), made)
	c.object("event-types", "put", "-json", "-tenant", "acme", "-deprecated", "invoice.old")
	code, out, _ := c.run("event-types", "list", "-tenant", "acme", "-limit", "1")
	is.Equal(code, 0)
	is.True(strings.Contains(out, "invoice.old") && strings.Contains(out, "more with: -after invoice.old"))
	listed := c.object("event-types", "list", "-json", "-tenant", "acme", "-after", "invoice.old")["data"].([]any)
	is.Equal(len(listed), 1)
	code, out, _ = c.run("event-types", "show", "-tenant", "acme", "invoice.paid")
	is.True(code == 0 && strings.Contains(out, `{"type":"object"}`))

	for _, wrong := range [][]string{
		{"event-types", "list"},
		{"event-types", "list", "-tenant", "acme", "-limit", "0"},
		{"event-types", "show", "invoice.paid"},
		{"event-types", "put", "-tenant", "acme"},
	} {
		code, _, errOut := c.run(wrong...)
		is.Equal(code, 2)
		is.True(errOut != "")
	}
	for want, args := range map[string][]string{
		"comes back to itself": {"-schema-file", file(`{"$ref":"#"}`), "a.b"},
		"needs a schema":       {"-validate", "a.b"},
	} {
		code, _, errOut := c.run(append([]string{"event-types", "put", "-tenant", "acme"}, args...)...)
		is.Equal(code, 1)
		is.True(strings.Contains(errOut, want))
	}

	is.Equal(c.object("event-types", "delete", "-json", "-tenant", "acme", "invoice.paid")["deleted"], true)
	code, _, _ = c.run("event-types", "show", "-tenant", "acme", "invoice.paid")
	is.Equal(code, 1)
}
