package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutation is a way to break the product. Its file says what it breaks in the first
// line, and then, a line each:
//
//	test: ARGUMENTS       of a `go test` that must fail
//	torture: ARGUMENTS    of a `scripts/torture` that must fail
//	file: PATH            what follows is in this file
//	-TEXT                 is replaced, with the lines beside it, wherever it stands, by
//	+TEXT                 as little of it as says what is meant, since code moves on
type mutation struct {
	name, what string
	trials     []trial
	edits      []edit
}

type trial struct {
	kind string // test or torture
	args []string
}

// edit replaces a text, line by line, by another.
type edit struct {
	file     string
	old, new []string
}

// read reads all mutations of a directory.
func read(dir string) ([]*mutation, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.mutation"))
	if err != nil {
		return nil, err
	}
	list := make([]*mutation, len(names))
	for i, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if list[i], err = parse(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		list[i].name = strings.TrimSuffix(filepath.Base(name), ".mutation")
	}
	return list, nil
}

func parse(text string) (*mutation, error) {
	what, rest, _ := strings.Cut(text, "\n")
	m := &mutation{what: what}
	file := ""
	var last byte
	for line := range strings.Lines(rest) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			last = 0
			continue
		}
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case line[0] == '-' || line[0] == '+':
			if file == "" {
				return nil, errors.New("an edit before any file")
			}
			if len(m.edits) == 0 || m.edits[len(m.edits)-1].file != file || line[0] == '-' && last != '-' {
				m.edits = append(m.edits, edit{file: file})
			}
			e := &m.edits[len(m.edits)-1]
			if line[0] == '-' {
				e.old = append(e.old, line[1:])
			} else {
				e.new = append(e.new, line[1:])
			}
		case key == "test" || key == "torture":
			m.trials = append(m.trials, trial{key, strings.Fields(value)})
		case key == "file":
			file = value
		default:
			return nil, fmt.Errorf("what is %q?", line)
		}
		last = line[0]
	}
	if len(m.edits) == 0 || len(m.trials) == 0 {
		return nil, errors.New("it changes nothing, or names nothing that notices")
	}
	return m, nil
}

// apply replaces the text everywhere. That it is nowhere is an error: the code has moved
// on, and the mutation with it should.
func (e *edit) apply(text string) (string, error) {
	old := strings.Join(e.old, "\n")
	if old == "" || !strings.Contains(text, old) {
		return "", fmt.Errorf("%s has no longer the text %q", e.file, old)
	}
	return strings.ReplaceAll(text, old, strings.Join(e.new, "\n")), nil
}
