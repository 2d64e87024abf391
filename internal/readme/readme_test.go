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

var linkPattern = regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`)

// links are those of a file of the repository, as pairs of a name and a path from the root.
// What is on the web is left out.
func links(t *testing.T, file string) (found [][2]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	is.New(t).NoErr(err)
	for _, link := range linkPattern.FindAllStringSubmatch(string(text), -1) {
		if target, _, _ := strings.Cut(link[2], "#"); target != "" && !strings.HasPrefix(target, "https://") {
			found = append(found, [2]string{link[1], filepath.Join(filepath.Dir(file), target)})
		}
	}
	return found
}

// documents are the files for people, from the root.
func documents(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md", "docs/reference/*.md", "bench/*.md"} {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		is.New(t).NoErr(err)
		for _, match := range matches {
			file, err := filepath.Rel(root, match)
			is.New(t).NoErr(err)
			files = append(files, file)
		}
	}
	return files
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	total := 0
	for _, file := range documents(t) {
		for _, link := range links(t, file) {
			total++
			name, target := link[0], link[1]
			info, err := os.Stat(filepath.Join(root, target))
			if err != nil {
				t.Errorf("%s, %s: %v", file, name, err)
				continue
			}
			if info.IsDir() || file != "README.md" || !strings.HasSuffix(target, "_test.go") {
				continue
			}
			content, err := os.ReadFile(filepath.Join(root, target))
			is.New(t).NoErr(err)
			if !strings.Contains(string(content), "func Test"+name+"(") {
				t.Errorf("%s has no Test%s", target, name)
			}
		}
	}
	is.New(t).True(total > 40)
}

// Whoever reads the README, and the index of docs/, finds every other document, by its name
// or in its folder.
func TestEveryDocumentIsLinked(t *testing.T) {
	t.Parallel()
	linked := map[string]bool{"README.md": true}
	for _, link := range append(links(t, "README.md"), links(t, "docs/README.md")...) {
		linked[link[1]] = true
	}
	for _, file := range documents(t) {
		if !linked[file] && !linked[filepath.Dir(file)] {
			t.Errorf("neither the README nor docs/README.md links to %s", file)
		}
	}
}
