package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
	urfave "github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/internal/cli"
)

var (
	shownCommand = regexp.MustCompile("(?m)(?:^|`)(?:\\./)?(postlane (?:[a-z-]+ )[^\n`#|]*)")
	shownFlag    = regexp.MustCompile(`(?:^| )--?([a-z][a-z0-9-]*)`)
	quoted       = regexp.MustCompile(`'[^']*'|"[^"]*"`)
)

// Every command that a guide shows is one that there is, with the flags that it has.
func TestGuidesShowWhatThereIs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	files, err := filepath.Glob("../../docs/*.md")
	is.NoErr(err)
	shown := 0
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		is.NoErr(err)
		for _, m := range shownCommand.FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(m[1], "postlane completion ") {
				continue // the library adds it
			}
			line := quoted.ReplaceAllString(m[1], "x")
			c := cli.Commands()
			for _, word := range strings.Fields(line)[1:] {
				sub := c.Command(word)
				if sub == nil {
					break
				}
				c = sub
			}
			if c.Name == "postlane" || len(c.Commands) > 0 && strings.Contains(line, " -") {
				t.Errorf("%s shows %q, which is no command", filepath.Base(file), m[1])
				continue
			}
			shown++
			for _, f := range shownFlag.FindAllStringSubmatch(line, -1) {
				if !has(c, f[1]) {
					t.Errorf("%s shows %q: there is no flag -%s", filepath.Base(file), m[1], f[1])
				}
			}
		}
	}
	is.True(shown > 20)
}

func has(c *urfave.Command, flag string) bool {
	if flag == "help" || flag == "version" {
		return true
	}
	for _, f := range c.Flags {
		if slices.Contains(f.Names(), flag) {
			return true
		}
	}
	return false
}
