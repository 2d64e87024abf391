package postgres

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"
)

func TestMajor(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for version, major := range map[string]int{"15.18": 15, "18beta1": 18, "9.6.24": 9, "19devel": 19, "": 0} {
		is.Equal(Binaries{Version: version}.Major(), major)
	}
}

func TestNewestFirst(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.True(number("/usr/lib/postgresql/15/bin") > number("/usr/lib/postgresql/9.6/bin"))
	is.True(number("/opt/homebrew/opt/postgresql@17/bin") > number("/opt/homebrew/opt/postgresql@16/bin"))
}

// Debian and Homebrew link binaries to other places. The server needs its own.
func TestLinksAreFollowed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	found, err := Find()
	if err != nil {
		t.Skip(err)
	}
	links := t.TempDir()
	for _, name := range []string{"postgres", "initdb"} {
		is.NoErr(os.Symlink(filepath.Join(found.Dir, name), filepath.Join(links, name)))
	}
	byLink, err := inspect(links)
	is.NoErr(err)
	is.Equal(byLink, found)

	_, err = inspect(t.TempDir())
	is.True(strings.Contains(err.Error(), "no postgres binary"))
}

func TestDataOfAnotherVersion(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	if _, err := Find(); err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	is.NoErr(os.Mkdir(dir, 0o700))
	is.NoErr(os.WriteFile(filepath.Join(dir, "PG_VERSION"), []byte("14\n"), 0o600))
	_, err := Start(t.Context(), Config{Dir: dir})
	is.True(strings.Contains(err.Error(), "is of PostgreSQL 14"))
	is.True(strings.Contains(err.Error(), "install PostgreSQL 14, or remove that directory"))
}
