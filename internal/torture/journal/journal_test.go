package journal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/torture/journal"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	name := filepath.Join(t.TempDir(), "a.jsonl")
	for _, sync := range []bool{true, false} { // appended to
		w, err := journal.Create(name, sync)
		is.NoErr(err)
		is.NoErr(w.Write(journal.Line{Commit: &journal.Commit{Tx: "1"}}, journal.Line{State: &journal.State{Path: "/s"}}))
		w.Close()
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	is.NoErr(err)
	_, err = file.WriteString(`{"commit":{"tx":"half`)
	is.NoErr(err)
	is.NoErr(file.Close())
	var got []string
	is.NoErr(journal.Read(filepath.Dir(name), func(file string, l journal.Line) error {
		is.Equal(file, "a.jsonl")
		switch {
		case l.Commit != nil:
			got = append(got, l.Commit.Tx)
		case l.State != nil:
			got = append(got, l.State.Path)
		}
		return nil
	}))
	is.Equal(strings.Join(got, " "), "1 /s 1 /s")
	is.True(journal.Read(t.TempDir(), nil) != nil)
}

func TestAPayloadIsItsNonces(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	a := journal.Payload(1, 100)
	is.True(len(a) >= 100 && len(a) < 130)
	is.True(strings.Contains(string(a), journal.Marker))
	is.Equal(string(a), string(journal.Payload(1, 100)))
	is.True(string(a) != string(journal.Payload(2, 100)))
}
