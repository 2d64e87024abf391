package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	keeperEnv = "POSTLANE_TEST_KEEPER" // holds the state directory
	keepFile  = "keep"                 // there: a test failed, and left its database

	linger       = 10 * time.Second // how long the server outlives its last user
	lingerFailed = 10 * time.Minute // the same, after a failed test
)

// init turns the process into the keeper where startKeeper started it: a test
// binary has no other place that runs before its tests, and a program of its
// own would have to be built before the first test can run.
func init() {
	dir := os.Getenv(keeperEnv)
	if dir == "" {
		return
	}
	os.Unsetenv(keeperEnv)
	if err := keep(dir, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// answer is the keeper's only message to its starter.
type answer struct {
	Server Server
	Error  string
}

// startKeeper starts the keeper and returns its server.
func startKeeper(ctx context.Context, dir string) (Server, error) {
	executable, err := os.Executable()
	if err != nil {
		return Server{}, err
	}
	log, err := os.Create(filepath.Join(dir, "keeper.log"))
	if err != nil {
		return Server{}, err
	}
	defer log.Close()
	cmd := exec.Command(executable)
	cmd.Env = append(os.Environ(), keeperEnv+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a Ctrl-C is not for it
	cmd.Stderr = log
	// A pipe of our own: exec's would tie the keeper's life to this process.
	read, write, err := os.Pipe()
	if err != nil {
		return Server{}, err
	}
	defer read.Close()
	cmd.Stdout = write
	err = cmd.Start()
	write.Close()
	if err != nil {
		return Server{}, fmt.Errorf("start the keeper of the test server: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()

	said, err := io.ReadAll(read)
	if err != nil {
		return Server{}, err
	}
	var a answer
	if err := json.Unmarshal(said, &a); err != nil {
		_ = cmd.Wait()
		return Server{}, errors.Join(ctx.Err(), fmt.Errorf("the keeper of the test server ended; see %s", log.Name()))
	}
	if a.Error != "" {
		_ = cmd.Wait()
		return Server{}, errors.New(a.Error)
	}
	return a.Server, cmd.Process.Release()
}

// keep runs a server until nobody uses it.
func keep(dir string, starter *os.File) error {
	s, running, err := start(dir)
	if err == nil {
		s.Dir, s.Keeper = dir, os.Getpid()
		err = writeState(dir, s)
	}
	a := answer{Server: s}
	if err != nil {
		a.Error = err.Error()
	}
	if err := json.NewEncoder(starter).Encode(a); err != nil && running != nil {
		running.stop()
		return err
	}
	starter.Close()
	if err != nil {
		return err
	}
	return watch(dir, running)
}

// watch returns when the server has been without users for a while and is shut
// down, or when it ended by itself.
func watch(dir string, running *running) error {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	lease, err := os.OpenFile(filepath.Join(dir, "lease"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	free := func() bool { return flock(lease, syscall.LOCK_EX|syscall.LOCK_NB) == nil }

	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	lastUsed := time.Now()
	for {
		select {
		case <-running.ended:
			return errors.Join(errors.New("the server ended by itself"), os.Remove(stateFile(dir)))
		case <-tick.C:
		}
		if _, err := os.Stat(stateFile(dir)); errors.Is(err, os.ErrNotExist) {
			running.stop() // somebody cleared the directory away
			return running.clean()
		}
		if !free() {
			lastUsed = time.Now()
			continue
		}
		if err := flock(lease, syscall.LOCK_UN); err != nil {
			return err
		}
		if time.Since(lastUsed) < patience(dir) {
			continue
		}
		// Locked in the order in which a newcomer does, and kept until this
		// process ends: a newcomer finds the old server up, or none at all.
		if flock(lock, syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			continue
		}
		if !free() {
			if err := flock(lock, syscall.LOCK_UN); err != nil {
				return err
			}
			continue
		}
		running.stop()
		return errors.Join(os.Remove(stateFile(dir)), running.clean())
	}
}

func patience(dir string) time.Duration {
	if _, err := os.Stat(filepath.Join(dir, keepFile)); err == nil {
		return lingerFailed
	}
	return linger
}

func writeState(dir string, s Server) error {
	if err := os.Remove(filepath.Join(dir, keepFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	content, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(stateFile(dir), content, 0o600)
}
