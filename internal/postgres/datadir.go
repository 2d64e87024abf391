package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	superuser    = "postgres"
	passwordFile = "superuser.password"
)

// lockDir makes the data directory this process's own until the file is
// closed. The lock goes with the process, so a killed one leaves none.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("the PostgreSQL in %s is in use by another process: stop that one first, or use another directory", dir)
		}
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	return lock, nil
}

// find returns the binaries to run on the directory.
func (c Config) find() (Binaries, error) {
	major := dataMajor(c.Dir)
	var found Binaries
	var err error
	switch {
	case c.Bin != "":
		if found, err = inspect(c.Bin); err != nil {
			err = fmt.Errorf("server binaries in %s: %w", c.Bin, err)
		}
	default:
		found, err = find(major)
		if errors.Is(err, ErrNoPostgres) && major != 0 {
			found, err = find(0) // to name it in the error below
		}
	}
	if err != nil {
		return Binaries{}, err
	}
	if major != 0 && found.Major() != major {
		return Binaries{}, fmt.Errorf("the data in %s is of PostgreSQL %d, the server binaries in %s are %s: install PostgreSQL %d, or remove that directory if its data may go",
			c.Dir, major, found.Dir, found.Version, major)
	}
	return found, nil
}

func hasData(dir string) bool { return dataMajor(dir) != 0 }

// dataMajor returns the major version that the data in a directory is of, 0
// where there is no data.
func dataMajor(dir string) int {
	version, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if err != nil {
		return 0
	}
	major, _ := strconv.Atoi(strings.TrimSpace(string(version)))
	return major
}

// initdb makes a database cluster. It is made beside its place and moved there
// when it is whole, so that a run that was killed leaves nothing half-made.
func initdb(ctx context.Context, dir string, binaries Binaries, owner *owner, sync bool) error {
	if left, err := os.ReadDir(dir); err == nil && len(left) > 0 {
		return fmt.Errorf("%s is neither empty nor a PostgreSQL data directory", dir)
	}
	unfinished := dir + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return err
	}
	if err := owner.own(unfinished); err != nil {
		return err
	}

	password := rand.Text()
	secret, err := os.CreateTemp(filepath.Dir(dir), "initdb-*.password") // made with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(secret.Name())
	_, err = secret.WriteString(password)
	if err := errors.Join(err, secret.Close(), owner.own(secret.Name())); err != nil {
		return err
	}

	arguments := []string{
		"-D", unfinished, "-U", superuser, "--encoding=UTF8", "--locale=C", "--pwfile=" + secret.Name(),
		"--auth-local=trust", "--auth-host=scram-sha-256", "--no-instructions",
	}
	if !sync {
		arguments = append(arguments, "--no-sync")
	}
	cmd := owner.command(filepath.Join(binaries.Dir, "initdb"), arguments...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "TZ=UTC", "LC_ALL=C")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	process, err := startProcess(cmd)
	if err != nil {
		return fmt.Errorf("start initdb: %w", err)
	}
	select {
	case <-process.done:
	case <-ctx.Done():
		process.stop(0)
		return ctx.Err()
	}
	if process.err != nil {
		return fmt.Errorf("initdb in %s: %w\n%s", unfinished, process.err, strings.TrimSpace(said.String()))
	}

	kept := filepath.Join(unfinished, passwordFile)
	if err := os.WriteFile(kept, []byte(password), 0o600); err != nil {
		return err
	}
	if err := owner.own(kept); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Rename(unfinished, dir)
}

func readPassword(dir string) (string, error) {
	password, err := os.ReadFile(filepath.Join(dir, passwordFile))
	if err != nil {
		return "", fmt.Errorf("%s was not made by Postlane: %w", dir, err)
	}
	return string(password), nil
}

// readPidFile returns what the server in a directory says of itself: its
// process, and whether it accepts connections.
func readPidFile(dir string) (pid int, ready bool) {
	content, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		return 0, false
	}
	lines := strings.Split(string(content), "\n")
	pid, _ = strconv.Atoi(strings.TrimSpace(lines[0]))
	const status = 7 // the line, as in PostgreSQL's utils/pidfile.h
	return pid, len(lines) > status && strings.TrimSpace(lines[status]) == "ready"
}

// endOrphan clears the way for a server in a directory that we hold the lock
// of: whatever its postmaster.pid speaks of was left by a process that was
// killed. A server that still runs there is shut down. PostgreSQL takes over
// the file of a dead one itself, but refuses to start where another process
// has that number by now, so such a file is removed.
func endOrphan(ctx context.Context, dir string) error {
	pid, _ := readPidFile(dir)
	if pid <= 0 || !lives(pid) {
		return nil
	}
	if !runsIn(pid, dir) {
		return os.Remove(filepath.Join(dir, "postmaster.pid"))
	}
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} { // fast, immediate, by force
		_ = syscall.Kill(pid, signal)
		_ = syscall.Kill(pid, syscall.SIGCONT) // a frozen one hears nothing
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
			if !lives(pid) {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return fmt.Errorf("the PostgreSQL that an earlier run left in %s (process %d) does not end", dir, pid)
}

// lives tells whether there is a process of that number.
func lives(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
