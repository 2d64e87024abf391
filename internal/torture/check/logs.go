package check

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/postlane-go/postlane/internal/torture/journal"
)

// logs reads every log of a run and looks for what must be in none.
func (r *Report) logs(dir string, secrets []string) error {
	forbidden := [][]byte{[]byte(journal.Marker)}
	for _, s := range secrets {
		forbidden = append(forbidden, []byte(strings.TrimPrefix(s, "whsec_")))
	}
	tree := os.DirFS(dir)
	return fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // a file of the database that went
			return nil
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".log") {
			return err
		}
		file, err := tree.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		in := bufio.NewReader(file)
		for n := 1; ; n++ {
			line, err := in.ReadBytes('\n')
			if len(line) > 0 {
				r.logLine(path, n, line, forbidden)
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
}

func (r *Report) logLine(path string, n int, line []byte, forbidden [][]byte) {
	for _, text := range forbidden {
		if bytes.Contains(line, text) {
			r.find(&r.Leaks, "leak", "%s:%d", path, n)
			break
		}
	}
	for _, complaint := range []string{"this is a bug", "panic:", "DATA RACE"} {
		if bytes.Contains(line, []byte(complaint)) {
			r.find(&r.Bugs, "bug", "%s:%d: %s", path, n, bytes.TrimSpace(line))
			break
		}
	}
}
