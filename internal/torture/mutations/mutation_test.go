package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"
)

// A mutation whose lines are gone would show nothing.
func TestEveryMutationStillApplies(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	list, err := read(".")
	is.NoErr(err)
	is.True(len(list) >= 10)
	for _, m := range list {
		for _, e := range m.edits {
			text, err := os.ReadFile(filepath.Join("../../..", e.file))
			is.NoErr(err)
			if _, err = e.apply(string(text)); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, err := parse("What it breaks.\ntest: ./a -run B\nfile: a.go\n-old\n-lines\n+new\n\n-other\nfile: b.go\n-more\n+less\n")
	is.NoErr(err)
	is.Equal(m.what, "What it breaks.")
	is.Equal(m.trials, []trial{{"test", []string{"./a", "-run", "B"}}})
	is.Equal(m.edits, []edit{
		{"a.go", []string{"old", "lines"}, []string{"new"}}, {"a.go", []string{"other"}, nil}, {"b.go", []string{"more"}, []string{"less"}},
	})
	text, err := m.edits[0].apply("an old\nlines\nand\nold\nlines of it\n")
	is.NoErr(err)
	is.Equal(text, "an new\nand\nnew of it\n")
	_, err = m.edits[0].apply("an old\nand lines\n")
	is.True(err != nil)
	for _, bad := range []string{"x\n-a\n", "x\nfile: a\n-b\n", "x\ntest: a\n", "x\nwhy\n"} {
		_, err := parse(bad)
		is.True(err != nil)
	}
}
