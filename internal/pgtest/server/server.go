package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// URLEnv names the environment variable that may hold the URL of a database
// of the server to use, for a role that may create databases.
const URLEnv = "POSTLANE_TEST_DATABASE_URL"

// Server is a PostgreSQL that tests may use.
type Server struct {
	URL     string `json:"url"`     // of a database that is there, for creating others
	Pooler  string `json:"pooler"`  // host and port of the pooler in front of it; empty without one
	Version string `json:"version"` // such as "15.18"
	Source  string `json:"source"`  // where it comes from, for people
	Dir     string `json:"dir"`     // of its state; empty where it was not started here
	Keeper  int    `json:"keeper"`  // the process that owns it; 0 as above
}

// String describes the server for people.
func (s Server) String() string {
	return fmt.Sprintf("PostgreSQL %s (%s)", s.Version, s.Source)
}

// lease keeps the file open, and so the lock on it, as long as the process lives.
var lease *os.File

// Use returns the server for this process, starting it if it does not run. It
// stays at least until the process ends. Any number of goroutines may call it;
// all get the same answer.
var Use = sync.OnceValues(func() (Server, error) {
	// A server that must be made, with a container to be built, takes a while.
	ctx, cancel := context.WithTimeout(context.Background(), 7*time.Minute)
	defer cancel()
	if url := os.Getenv(URLEnv); url != "" {
		s, err := ask(ctx, Server{URL: url, Source: "named by " + URLEnv})
		if err != nil {
			return Server{}, fmt.Errorf("%s: %w", URLEnv, err)
		}
		return s, nil
	}
	dir, err := stateDir()
	if err != nil {
		return Server{}, err
	}
	return join(ctx, dir)
})

// join returns the server of a state directory, and keeps it up from now on.
func join(ctx context.Context, dir string) (Server, error) {
	// Whoever comes while another starts the server, or while the keeper shuts
	// it down, waits here.
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return Server{}, err
	}
	defer lock.Close()
	if err := flock(lock, syscall.LOCK_EX); err != nil {
		return Server{}, err
	}
	if lease, err = os.OpenFile(filepath.Join(dir, "lease"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return Server{}, err
	}
	if err := flock(lease, syscall.LOCK_SH); err != nil {
		return Server{}, err
	}

	if s, err := readState(dir); err == nil {
		if s, err = ask(ctx, s); err == nil {
			return s, nil
		}
	}
	s, err := startKeeper(ctx, dir)
	if err != nil {
		return Server{}, err
	}
	return ask(ctx, s)
}

// ask asks the server for its version, which shows that it answers.
func ask(ctx context.Context, s Server) (Server, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return Server{}, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&s.Version)
	return s, err
}

// KeepLonger makes the server of this run stay up for some minutes after the
// last test, so that a person can look into what a failed one left.
func (s Server) KeepLonger() error {
	if s.Dir == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(s.Dir, keepFile), nil, 0o600)
}

func stateFile(dir string) string { return filepath.Join(dir, "server.json") }

func readState(dir string) (Server, error) {
	var s Server
	content, err := os.ReadFile(stateFile(dir))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(content, &s)
}

// stateDir returns the directory of the server that this environment leads to.
func stateDir() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("postlane-test-%d-%s", os.Getuid(), settingsKey()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	// In a directory that everybody may write to, somebody else may have been first.
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(stat.Uid) != os.Getuid() || info.Mode().Perm() != 0o700 {
		return "", fmt.Errorf("%s is not a directory of this user alone: remove it", dir)
	}
	return dir, nil
}

// flock is syscall.Flock, which a signal may interrupt.
func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
