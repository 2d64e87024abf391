package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/internal/pgtest/server"
)

// childEnv makes this test binary a process that uses the server until its
// standard input ends.
const childEnv = "POSTLANE_TEST_USE_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		s, err := server.Use()
		if err != nil {
			s.Source = err.Error()
		}
		json.NewEncoder(os.Stdout).Encode(s)
		io.Copy(io.Discard, os.Stdin)
		return
	}
	goleak.VerifyTestMain(m)
}

func TestProcessesShareOneServerWhichEndsAfterThem(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	tmp := tempDir(t)
	users := make([]*user, 4)
	var started sync.WaitGroup
	for i := range users {
		started.Go(func() { users[i] = use(t, tmp) })
	}
	started.Wait()
	for _, u := range users {
		is.Equal(u.server, users[0].server)
	}
	is.NoErr(ping(t, users[0].server))

	for _, u := range users {
		u.end()
	}
	gone(t, users[0].server)
	left, err := os.ReadDir(users[0].server.Dir)
	is.NoErr(err)
	for _, entry := range left {
		is.True(entry.Name() != "data") // it cleans up
	}
}

func TestKilledKeeperIsReplaced(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	tmp := tempDir(t)
	first := use(t, tmp)
	is.NoErr(syscall.Kill(first.server.Keeper, syscall.SIGKILL))
	second := use(t, tmp)
	is.True(second.server.Keeper != first.server.Keeper)
	is.NoErr(ping(t, second.server))
}

func TestServerOfTheEnvironment(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	tmp := tempDir(t)
	first := use(t, tmp)
	second := use(t, filepath.Join(tmp, "no such directory"), server.URLEnv+"="+first.server.URL)
	is.Equal(second.server.URL, first.server.URL)
	is.Equal(second.server.Keeper, 0) // nothing was started

	wrong := use(t, tmp, server.URLEnv+"=postgres://nobody@127.0.0.1:1/none")
	is.Equal(wrong.server.URL, "")
	is.True(strings.Contains(wrong.server.Source, server.URLEnv)) // the error says what to mend
}

func TestDirectoryOfSomebodyElseIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	tmp := tempDir(t)
	first := use(t, tmp)
	first.end()
	is.NoErr(os.Chmod(first.server.Dir, 0o777))
	second := use(t, tmp)
	is.Equal(second.server.URL, "")
	is.True(strings.Contains(second.server.Source, "is not a directory of this user alone"))
}

// user is another process that uses the server.
type user struct {
	server server.Server
	end    func()
}

func use(t *testing.T, tmp string, environment ...string) *user {
	t.Helper()
	is := is.New(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1", "TMPDIR="+tmp, server.URLEnv+"=", server.FromEnv+"=binaries")
	cmd.Env = append(cmd.Env, environment...)
	stdin, err := cmd.StdinPipe()
	is.NoErr(err)
	stdout, err := cmd.StdoutPipe()
	is.NoErr(err)
	is.NoErr(cmd.Start())
	u := &user{end: sync.OnceFunc(func() {
		stdin.Close()
		cmd.Wait()
	})}
	t.Cleanup(u.end)
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	is.NoErr(err)
	is.NoErr(json.Unmarshal(line, &u.server))
	return u
}

// tempDir is t.TempDir, which ends the keepers that have their state in it: a
// keeper whose directory has gone does.
func tempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		states, _ := filepath.Glob(filepath.Join(dir, "*", "server.json"))
		for _, state := range states {
			content, err := os.ReadFile(state)
			if err != nil {
				continue
			}
			var s server.Server
			if json.Unmarshal(content, &s) == nil && os.Remove(state) == nil {
				gone(t, s)
			}
		}
	})
	return dir
}

func ping(t *testing.T, s server.Server) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// gone waits until the keeper has ended, and with it the server.
func gone(t *testing.T, s server.Server) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ended(s.Keeper) == nil {
		select {
		case <-deadline.C:
			t.Fatalf("the keeper, process %d, does not end", s.Keeper)
		case <-tick.C:
		}
	}
	if ping(t, s) == nil {
		t.Fatal("the keeper ended, its server did not")
	}
}

// ended returns an error when a process has ended. One that nobody waits for
// yet, where the children's parent is slow, has ended too.
func ended(pid int) error {
	if err := syscall.Kill(pid, 0); err != nil {
		return err
	}
	if stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat")); err == nil && strings.Contains(string(stat), ") Z ") {
		return errors.New("a zombie")
	}
	return nil
}
