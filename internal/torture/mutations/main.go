// Command mutations breaks the product on purpose, one way at a time, in a copy of the
// tree, and shows which test and which torture run notices.
//
//	go run ./internal/torture/mutations [NAME...]
//
// Each *.mutation beside this file is one: what it breaks, where to look, and lines to
// replace. It exits 0 only if each is caught by everything that it names.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The copy is always in one place, so that what was built for one is not built again for
// the next.
const (
	place = "internal/torture/mutations"
	tree  = ".postlane/mutant"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutations:", err)
		os.Exit(1)
	}
}

func run(names []string) error {
	list, err := read(place)
	if err != nil {
		return err
	}
	escaped := 0
	for _, m := range list {
		if len(names) > 0 && !slices.Contains(names, m.name) {
			continue
		}
		fmt.Printf("%s: %s\n", m.name, m.what)
		if err := m.prepare(); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		for _, t := range m.trials {
			seen, err := t.run()
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			if seen == "" {
				escaped++
				seen = "ESCAPED"
			}
			fmt.Printf("  %s %s: %s\n", t.kind, strings.Join(t.args, " "), seen)
		}
	}
	if escaped > 0 {
		return fmt.Errorf("%d were not caught", escaped)
	}
	return nil
}

// prepare makes the copy of the tree, as it is here, with the mutation in it.
func (m *mutation) prepare() error {
	if err := copyTree(); err != nil {
		return err
	}
	sql := false
	for _, e := range m.edits {
		at := filepath.Join(tree, e.file)
		text, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		changed, err := e.apply(string(text))
		if err != nil {
			return err
		}
		if err := os.WriteFile(at, []byte(changed), 0o600); err != nil {
			return err
		}
		sql = sql || strings.HasSuffix(e.file, ".sql")
	}
	if sql {
		if said, err := in("./scripts/generate"); err != nil {
			return fmt.Errorf("generate: %w: %s", err, said)
		}
	}
	return nil
}

// copyTree copies what git would, and removes what it has no longer.
func copyTree() error {
	said, err := exec.Command("git", "ls-files", "-co", "--exclude-standard", "-z").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	names := strings.Split(strings.TrimSuffix(string(said), "\x00"), "\x00")
	for _, name := range names {
		if err := copyFile(name); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".postlane" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || slices.Contains(names, name):
			return nil
		}
		return root.Remove(name)
	})
}

// copyFile copies what differs, so that times of files that are the same stay.
func copyFile(name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	to := filepath.Join(tree, name)
	if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, info.Mode())
}

// in runs a command in the copy and returns all that it says.
func in(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = tree
	said, err := cmd.CombinedOutput()
	return string(said), err
}

// run tries to notice the mutation, and returns what did; "" if nothing.
func (t *trial) run() (seen string, err error) {
	if t.kind == "test" {
		said, err := in("go", append([]string{"test", "-count=1"}, t.args...)...)
		switch {
		case strings.Contains(said, "[build failed]") || strings.Contains(said, "[setup failed]"):
			return "", errors.New(said)
		case err == nil:
			return "", nil
		}
		return failures(said), nil
	}
	said, err := in("./scripts/torture", t.args...)
	if err == nil {
		return "", nil
	}
	if seen = verdict(said); seen == "" {
		return "", fmt.Errorf("the run was not judged: %s", said[max(0, len(said)-2000):])
	}
	return seen, nil
}

// failures names the tests that failed.
func failures(said string) string {
	var names []string
	for line := range strings.Lines(said) {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
		} else if strings.HasPrefix(line, "panic: ") {
			names = append(names, strings.TrimSpace(line))
		}
	}
	if len(names) == 0 {
		return "the package fails: " + said[max(0, len(said)-300):]
	}
	return strings.Join(names, ", ")
}

// verdict tells what a run found; "" if it was not judged.
func verdict(said string) string {
	var found []string
	for line := range strings.Lines(said) {
		var figures map[string]any
		if json.Unmarshal([]byte(line), &figures) != nil {
			continue
		}
		for _, name := range []string{
			"lost", "phantom", "out_of_order", "overlaps", "unexplained_duplicates",
			"stuck", "corrupt", "bad_signatures", "while_paused", "leaks", "bugs", "vanished",
		} {
			if n, _ := figures[name].(float64); n > 0 {
				found = append(found, fmt.Sprintf("%s %d", name, int(n)))
			}
		}
	}
	return strings.Join(found, ", ")
}
