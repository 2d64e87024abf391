package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a child that ends with this process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how, after done
}

// startProcess starts a child in a process group of its own: a Ctrl-C in the
// terminal is for us, and we stop the server when nothing needs it any more.
func startProcess(cmd *exec.Cmd) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	endWithParent(cmd.SysProcAttr)

	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// On Linux a child's parent is the thread that made it. A goroutine
		// that keeps its thread until the child has ended keeps that thread
		// from ending earlier.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop ends a server: by a fast shutdown, after patience by an immediate one,
// by force if that hangs too.
func (p *process) stop(patience time.Duration) {
	for _, step := range []struct {
		signal   os.Signal
		patience time.Duration
	}{{syscall.SIGINT, patience}, {syscall.SIGQUIT, 5 * time.Second}, {syscall.SIGKILL, time.Minute}} {
		if step.patience == 0 {
			continue
		}
		if err := p.cmd.Process.Signal(step.signal); errors.Is(err, os.ErrProcessDone) {
			break
		}
		timer := time.NewTimer(step.patience)
		select {
		case <-p.done:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
	<-p.done
}

// owner is the user that a server runs as.
type owner struct {
	uid, gid int
	switched bool // from root to another
}

// ownerOf returns the user to run as: this process's own, or, where that is
// root, the named one, or the first of the usual unprivileged ones.
func ownerOf(name string) (*owner, error) {
	if os.Geteuid() != 0 {
		return &owner{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	names := []string{"postgres", "nobody"}
	if name != "" {
		names = []string{name}
	}
	for _, name := range names {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(found.Uid)
		if err != nil || uid == 0 {
			continue
		}
		gid, err := strconv.Atoi(found.Gid)
		if err != nil {
			continue
		}
		return &owner{uid: uid, gid: gid, switched: true}, nil
	}
	return nil, fmt.Errorf("PostgreSQL does not run as root, and this machine has no user %s to run it as", strings.Join(names, " or "))
}

// own gives a file to the owner.
func (o *owner) own(path string) error {
	if !o.switched {
		return nil
	}
	return os.Chown(path, o.uid, o.gid)
}

// command returns a command that runs as the owner.
func (o *owner) command(path string, arguments ...string) *exec.Cmd {
	if !o.switched {
		return exec.Command(path, arguments...)
	}
	return o.switchedCommand(path, arguments...)
}

// runsIn tells whether a process is a PostgreSQL server that has dir for its
// data directory.
func runsIn(pid int, dir string) bool {
	if cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd")); err == nil {
		resolved, err := filepath.EvalSymlinks(dir)
		return err == nil && cwd == resolved
	}
	said, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(said), "postgres") && strings.Contains(string(said), dir)
}
