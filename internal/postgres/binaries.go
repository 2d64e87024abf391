package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// BinEnv names the environment variable that may hold the directory of the
// server binaries to use. Where it is set, no other place is looked at.
const BinEnv = "POSTLANE_POSTGRES_BIN"

// oldest is the first major version of PostgreSQL that Postlane supports.
const oldest = 15

// ErrNoPostgres is returned where there is no PostgreSQL to be had. Its text
// names the ways to one.
var ErrNoPostgres = errors.New(`no PostgreSQL found. One of these is needed:
  - the URL of a database, in POSTLANE_DATABASE_URL (for tests: POSTLANE_TEST_DATABASE_URL)
  - for tests: a Docker engine that has, or can pull, the image in POSTLANE_TEST_POSTGRES_IMAGE (default postgres:17-alpine)
  - server binaries of PostgreSQL 15 or later on this machine: the package "postgresql" of Debian, Ubuntu or Homebrew,
    "postgresql-server" of Fedora, or a directory that holds initdb and postgres, named in ` + BinEnv)

// Binaries is one installation of PostgreSQL's server on this machine.
type Binaries struct {
	Dir     string // holds initdb and postgres
	Version string // as the server tells it, such as "15.18" or "18beta1"
}

// Major returns the major version, such as 15, or 0 where it can't be told.
func (b Binaries) Major() int {
	digits := strings.IndexFunc(b.Version, func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(b.Version)
	}
	major, _ := strconv.Atoi(b.Version[:digits])
	return major
}

// Find returns the server binaries that Start uses for a new data directory:
// those in the directory that BinEnv names, or else the first of these that
// holds PostgreSQL 15 or later: PATH, `pg_config --bindir`, the directories
// of Debian's and Fedora's packages (newest version first), Homebrew's.
// Without any it returns ErrNoPostgres.
func Find() (Binaries, error) {
	return find(0)
}

// find is Find for one major version; 0 takes any.
func find(major int) (Binaries, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		found, err := inspect(dir)
		if err != nil {
			return Binaries{}, fmt.Errorf("%s is %s: %w", BinEnv, dir, err)
		}
		return found, nil
	}
	for _, dir := range candidates() {
		found, err := inspect(dir)
		if err != nil || found.Major() < oldest {
			continue
		}
		if major == 0 || found.Major() == major {
			return found, nil
		}
	}
	return Binaries{}, ErrNoPostgres
}

// inspect tells what is in a directory that may hold server binaries.
// Links are followed: the server finds its own files relative to where its
// binary really is.
func inspect(dir string) (Binaries, error) {
	server, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	if err != nil {
		return Binaries{}, fmt.Errorf("no postgres binary: %w", err)
	}
	dir = filepath.Dir(server)
	if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
		return Binaries{}, fmt.Errorf("no initdb binary: %w", err)
	}
	said, err := exec.Command(server, "--version").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("%s --version: %w", server, err)
	}
	// postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)
	_, version, _ := strings.Cut(string(said), "(PostgreSQL) ")
	version, _, _ = strings.Cut(strings.TrimSpace(version), " ")
	return Binaries{Dir: dir, Version: version}, nil
}

// candidates returns the directories that may hold server binaries, the ones
// to prefer first.
func candidates() []string {
	var dirs []string
	if server, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(server))
	}
	if said, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(said)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
		"/usr/pgsql-*/bin",                   // the PostgreSQL project's own RPMs
		"/opt/homebrew/opt/postgresql@*/bin", // Homebrew on Apple silicon
		"/usr/local/opt/postgresql@*/bin",    // Homebrew on Intel
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	} {
		found, _ := filepath.Glob(pattern) // the only error is a bad pattern
		slices.SortFunc(found, func(a, b string) int { return cmp.Compare(number(b), number(a)) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// number returns the version in a path such as /usr/lib/postgresql/15/bin, as
// a number: "9.6" sorts before "15".
func number(path string) float64 {
	start := strings.IndexAny(path, "0123456789")
	if start < 0 {
		return 0
	}
	end := start
	for end < len(path) && (path[end] == '.' || path[end] >= '0' && path[end] <= '9') {
		end++
	}
	version, _ := strconv.ParseFloat(path[start:end], 64)
	return version
}
