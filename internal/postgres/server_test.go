package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/postgres"
)

func TestServerKeepsItsData(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	config := postgres.Config{Dir: filepath.Join(t.TempDir(), "data"), NoSync: true}

	server, err := postgres.Start(t.Context(), config)
	is.NoErr(err)
	is.Equal(ask(t, server.URL("postgres"), "SHOW max_connections"), "300")
	is.Equal(ask(t, server.URL("postgres"), "SHOW fsync"), "off")
	is.True(strings.HasPrefix(ask(t, server.URL("postgres"), "SHOW server_version"), server.Version()))
	ask(t, server.URL("postgres"), "CREATE TABLE kept AS SELECT 7 AS n; SELECT 1")
	is.NoErr(server.Stop())
	is.NoErr(server.Stop()) // any number of times

	config.NoSync = false
	config.Settings = map[string]string{"max_connections": "12"}
	server, err = postgres.Start(t.Context(), config)
	is.NoErr(err)
	defer server.Stop()
	is.Equal(ask(t, server.URL("postgres"), "SELECT n FROM kept"), "7")
	is.Equal(ask(t, server.URL("postgres"), "SHOW fsync"), "on")
	is.Equal(ask(t, server.URL("postgres"), "SHOW max_connections"), "12")
}

func TestDirectoryHasOneServer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	config := postgres.Config{Dir: filepath.Join(t.TempDir(), "data"), NoSync: true}
	server, err := postgres.Start(t.Context(), config)
	is.NoErr(err)
	defer server.Stop()

	_, err = postgres.Start(t.Context(), config)
	is.True(err != nil)
	is.True(strings.Contains(err.Error(), "in use by another process"))
}

func TestRestartKeepsThePort(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server, err := postgres.Start(t.Context(), postgres.Config{Dir: filepath.Join(t.TempDir(), "data"), NoSync: true})
	is.NoErr(err)
	defer server.Stop()

	before, address := server.Done(), server.URL("postgres")
	is.NoErr(server.Restart(t.Context()))
	<-before // the first process has ended
	is.Equal(server.URL("postgres"), address)
	is.Equal(ask(t, address, "SELECT 1"), "1")
}

// A directory of a process that was killed must be usable at once, whatever
// of the server is left.
func TestKilledOwner(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(t *testing.T, owner *exec.Cmd, postmaster int){
		"owner": func(t *testing.T, owner *exec.Cmd, postmaster int) {
			is.New(t).NoErr(owner.Process.Kill())
		},
		"owner and server": func(t *testing.T, owner *exec.Cmd, postmaster int) {
			is := is.New(t)
			is.NoErr(syscall.Kill(postmaster, syscall.SIGKILL))
			is.NoErr(owner.Process.Kill())
		},
		"owner, and the server is frozen": func(t *testing.T, owner *exec.Cmd, postmaster int) {
			is := is.New(t)
			is.NoErr(syscall.Kill(postmaster, syscall.SIGSTOP))
			is.NoErr(owner.Process.Kill())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			dir := filepath.Join(t.TempDir(), "data")
			owner, address := serveInChild(t, dir)
			ask(t, address, "CREATE TABLE kept AS SELECT 7 AS n; SELECT 1")
			kill(t, owner, postmaster(t, dir))
			owner.Wait()

			server, err := postgres.Start(t.Context(), postgres.Config{Dir: dir, NoSync: true})
			is.NoErr(err)
			defer server.Stop()
			is.Equal(ask(t, server.URL("postgres"), "SELECT n FROM kept"), "7")
		})
	}
}

func TestServerEndsWithItsOwner(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("only Linux ends a child with its parent")
	}
	is := is.New(t)
	dir := filepath.Join(t.TempDir(), "data")
	owner, _ := serveInChild(t, dir)
	pid := postmaster(t, dir)
	is.NoErr(owner.Process.Kill())
	owner.Wait()
	is.NoErr(eventually(t, func() error {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			return errors.New("the server still runs")
		}
		return nil
	}))
}

func TestStalePidFileOfAnotherProcess(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	config := postgres.Config{Dir: filepath.Join(t.TempDir(), "data"), NoSync: true}
	server, err := postgres.Start(t.Context(), config)
	is.NoErr(err)
	pidFile := filepath.Join(config.Dir, "postmaster.pid")
	content, err := os.ReadFile(pidFile)
	is.NoErr(err)
	is.NoErr(server.Stop())

	// Of the same user as the server, or PostgreSQL would see by itself that
	// the file is not of a server of its own.
	other := exec.Command("sleep", "60")
	if os.Geteuid() == 0 {
		info, err := os.Stat(config.Dir)
		is.NoErr(err)
		uid := info.Sys().(*syscall.Stat_t).Uid
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	is.NoErr(other.Start())
	defer other.Wait()
	defer other.Process.Kill()
	_, rest, _ := strings.Cut(string(content), "\n")
	is.NoErr(os.WriteFile(pidFile, []byte(strconv.Itoa(other.Process.Pid)+"\n"+rest), 0o600))

	server, err = postgres.Start(t.Context(), config)
	is.NoErr(err)
	is.NoErr(server.Stop())
	is.NoErr(other.Process.Signal(syscall.Signal(0))) // it was left alone
}

func TestUnfinishedInitdbIsMadeAnew(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := filepath.Join(t.TempDir(), "data")
	is.NoErr(os.MkdirAll(filepath.Join(dir+".unfinished", "base"), 0o700))
	server, err := postgres.Start(t.Context(), postgres.Config{Dir: dir, NoSync: true})
	is.NoErr(err)
	is.NoErr(server.Stop())
}

func TestDirectoryOfSomethingElseIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := t.TempDir()
	is.NoErr(os.WriteFile(filepath.Join(dir, "thesis.txt"), []byte("mine"), 0o600))
	_, err := postgres.Start(t.Context(), postgres.Config{Dir: dir})
	is.True(err != nil)
	is.True(strings.Contains(err.Error(), "neither empty nor"))
	_, err = os.Stat(filepath.Join(dir, "thesis.txt"))
	is.NoErr(err)
}

func TestErrorSaysWhatTheServerSaid(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	_, err := postgres.Start(t.Context(), postgres.Config{
		Dir: filepath.Join(t.TempDir(), "data"), NoSync: true, Settings: map[string]string{"work_mem": "much"},
	})
	is.True(err != nil)
	is.True(strings.Contains(err.Error(), `invalid value for parameter "work_mem": "much"`))
}

// serveInChild starts a server that belongs to another process.
func serveInChild(t *testing.T, dir string) (owner *exec.Cmd, address string) {
	t.Helper()
	is := is.New(t)
	owner = exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), childEnv+"="+dir)
	_, err := owner.StdinPipe() // kept open
	is.NoErr(err)
	stdout, err := owner.StdoutPipe()
	is.NoErr(err)
	is.NoErr(owner.Start())
	t.Cleanup(func() { owner.Process.Kill() })
	address, err = bufio.NewReader(stdout).ReadString('\n')
	is.NoErr(err)
	if !strings.HasPrefix(address, "postgres://") {
		t.Fatal(address)
	}
	return owner, strings.TrimSpace(address)
}

func postmaster(t *testing.T, dir string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	is.New(t).NoErr(err)
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(first)
	is.New(t).NoErr(err)
	return pid
}

// ask returns the first column of the last statement's answer, as text.
func ask(t *testing.T, address, query string) string {
	t.Helper()
	is := is.New(t)
	conn, err := pgx.Connect(t.Context(), address)
	is.NoErr(err)
	defer conn.Close(context.Background())
	results, err := conn.PgConn().Exec(t.Context(), query).ReadAll()
	is.NoErr(err)
	return string(results[len(results)-1].Rows[0][0])
}

// eventually calls check until it returns nil or 20 seconds have passed.
func eventually(t *testing.T, check func() error) error {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-deadline.C:
			return err
		case <-tick.C:
		}
	}
}
