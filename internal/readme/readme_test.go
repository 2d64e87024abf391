// Package readme holds the README to what there is.
package readme_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"
)

const root = "../.."

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	is.NoErr(err)
	links := regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`).FindAllStringSubmatch(string(text), -1)
	is.True(len(links) > 20)
	for _, link := range links {
		name, target := link[1], link[2]
		if strings.HasPrefix(target, "https://") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, target))
		if info, statErr := os.Stat(filepath.Join(root, target)); statErr == nil && info.IsDir() {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.HasSuffix(target, "_test.go") && !strings.Contains(string(content), "func Test"+name+"(") {
			t.Errorf("%s has no Test%s", target, name)
		}
	}
}
