package readme_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"
)

var (
	anchorPattern  = regexp.MustCompile(`\]\(([^)#\s]*)#([^)\s]+)\)`)
	headingPattern = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropPattern    = regexp.MustCompile("[^a-z0-9 _-]")
)

// anchors are the headings of a document as a link names them.
func anchors(t *testing.T, file string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	is.New(t).NoErr(err)
	found := map[string]bool{}
	for _, m := range headingPattern.FindAllStringSubmatch(string(text), -1) {
		found[strings.ReplaceAll(dropPattern.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return found
}

func TestAnchorsAreHeadings(t *testing.T) {
	t.Parallel()
	for _, file := range documents(t) {
		text, err := os.ReadFile(filepath.Join(root, file))
		is.New(t).NoErr(err)
		for _, m := range anchorPattern.FindAllStringSubmatch(string(text), -1) {
			target := file
			switch {
			case strings.HasPrefix(m[1], "https://"):
				continue
			case m[1] != "":
				target = filepath.Join(filepath.Dir(file), m[1])
			}
			if strings.HasSuffix(target, ".md") && !anchors(t, target)[m[2]] {
				t.Errorf("%s links to %s#%s, which is no heading", file, target, m[2])
			}
		}
	}
}
