package readme_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"
)

var goPattern = regexp.MustCompile("(?s)```go\n(.*?)```")

// What the guides' Go snippets take from around them.
const around = `var (
	ctx     context.Context
	pool    *pgxpool.Pool
	tx      pgx.Tx
	id      string
	payload []byte
	err     error
	trial   struct{ Ends time.Time }
	event   delivery.Event
)
`

// The snippets of the guides that are pieces of a function compile as such.
func TestSnippetsCompile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	code := "package snippets\n\nimport (\n\t\"context\"\n\t\"time\"\n\n\t\"github.com/jackc/pgx/v5\"\n\t\"github.com/jackc/pgx/v5/pgxpool\"\n\n\t\"github.com/postlane-go/postlane/delivery\"\n\t\"github.com/postlane-go/postlane/eventschema\"\n)\n\n" + around
	n := 0
	for _, file := range []string{"docs/quickstart.md", "docs/ordering.md", "docs/events.md"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		is.NoErr(err)
		for _, m := range goPattern.FindAllStringSubmatch(string(text), -1) {
			n++
			code += fmt.Sprintf("\n//line %s:1\nfunc _() {\n%s\n_ = err\n}\n", file, strings.ReplaceAll(m[1], "//go:embed", "// embed"))
		}
	}
	is.True(n >= 3)
	dir := t.TempDir()
	source, overlay := filepath.Join(dir, "snippets.go"), filepath.Join(dir, "overlay.json")
	is.NoErr(os.WriteFile(source, []byte(code), 0o600))
	here, err := os.Getwd()
	is.NoErr(err)
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "snippets", "snippets.go"): source}})
	is.NoErr(err)
	is.NoErr(os.WriteFile(overlay, text, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "./snippets").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, strings.TrimSpace(string(out)))
	}
}
