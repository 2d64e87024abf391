package torture

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// ConfigEnv is the variable that holds a child's configuration: it may hold secrets,
// which a command line would show.
const ConfigEnv = "TORTURE_CONFIG"

// child is a process of the run, which is started again whenever it was killed. What it
// logs is appended to NAME.log.
type child struct {
	name, role string
	dir        string
	program    string
	// config returns that of the n-th start, from 1.
	config func(n int) any

	mu       sync.Mutex
	starts   int
	cmd      *exec.Cmd
	commands io.WriteCloser
	ended    chan struct{}
	err      error // after ended
	// busy is held by a fault that is at work on it.
	busy sync.Mutex
}

func (c *child) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starts++
	config, err := json.Marshal(c.config(c.starts))
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(c.dir, c.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.program, c.role)
	cmd.Env = append(os.Environ(), ConfigEnv+"="+string(config))
	cmd.Stdout, cmd.Stderr = log, log
	if c.commands, err = cmd.StdinPipe(); err != nil {
		return err
	}
	endWithParent(cmd)
	c.ended = make(chan struct{})
	if err := c.run(cmd, c.ended); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	c.cmd = cmd
	return nil
}

// run starts a process and waits for it on a thread that lives as long as it does: on
// Linux a child's parent is the thread that made it, with which it would end.
func (c *child) run(cmd *exec.Cmd, ended chan struct{}) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(ended)
		}
	}()
	return <-started
}

// tell writes a command to it. One that has ended meanwhile is not told.
func (c *child) tell(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.commands, format+"\n", args...)
}

func (c *child) signal(s os.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.cmd.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// kill ends it without a warning.
func (c *child) kill() {
	_ = c.signal(syscall.SIGKILL)
	<-c.ended
}

// errKilled: a child did not stop when it was told to.
var errKilled = errors.New("did not stop in time and was killed")

// stop tells it to stop, and waits.
func (c *child) stop(patience time.Duration) error {
	_ = c.signal(syscall.SIGCONT)
	_ = c.signal(syscall.SIGTERM)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.ended:
		return c.err
	case <-timer.C:
		c.kill()
		return fmt.Errorf("%s %w", c.name, errKilled)
	}
}
