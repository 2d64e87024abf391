// Package journal is what the processes of a torture run write down: one JSON object
// a line, appended and never changed. It is all that the checker reads.
//
// Times are nanoseconds since 1970 by the machine's clock, which no process that
// writes a journal has shifted.
package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Line is one line; exactly one field is set.
type Line struct {
	Run          *Run          `json:"run,omitempty"`
	Subscription *Subscription `json:"subscription,omitempty"`
	Secret       *Secret       `json:"secret,omitempty"`
	Change       *Change       `json:"change,omitempty"`
	Fault        *Fault        `json:"fault,omitempty"`
	Intent       *Intent       `json:"intent,omitempty"`
	Outcome      *Outcome      `json:"outcome,omitempty"`
	Start        *Start        `json:"start,omitempty"`
	End          *End          `json:"end,omitempty"`
	Commit       *Commit       `json:"commit,omitempty"`
	State        *State        `json:"state,omitempty"`
}

// Run is how a run was set up.
type Run struct {
	Seed    uint64        `json:"seed"`
	Lease   time.Duration `json:"lease"`
	Timeout time.Duration `json:"timeout"`
}

// Now is the time as journals have it.
func Now() int64 { return time.Now().UnixNano() }

// Writer appends lines to a file. It is safe for concurrent use.
type Writer struct {
	mu   sync.Mutex
	file *os.File
	sync bool
}

// Create opens a journal for appending. With sync, a line is on the disk when Write
// returns.
func Create(path string, sync bool) (*Writer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Writer{file: file, sync: sync}, nil
}

// Write appends lines. They are the kernel's when it returns, so a process that is
// killed afterwards has written them.
func (w *Writer) Write(lines ...Line) error {
	var b bytes.Buffer
	for _, l := range lines {
		if err := json.NewEncoder(&b).Encode(l); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.file.Write(b.Bytes()); err != nil {
		return err
	}
	if w.sync {
		return w.file.Sync()
	}
	return nil
}

// Close closes the file: what was written is the kernel's already.
func (w *Writer) Close() { w.file.Close() }

// Pattern is what the names of journals look like.
const Pattern = "*.jsonl"

// Read calls f with the lines of every journal of a directory, file by file. What a
// process that was killed left half written at the end of a file is left out.
func Read(dir string, f func(file string, l Line) error) error {
	names, err := filepath.Glob(filepath.Join(dir, Pattern))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("no journals in %s: %w", dir, fs.ErrNotExist)
	}
	for _, name := range names {
		if err := readFile(name, f); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func readFile(name string, f func(string, Line) error) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReader(file)
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var l Line
		if err := json.Unmarshal(text, &l); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if err := f(filepath.Base(name), l); err != nil {
			return err
		}
	}
}
