package delivery_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/retry"
	"github.com/postlane-go/postlane/delivery/sender"
)

// What this binary does instead of testing, where a test needs another process: the
// task, the database, and the claimant's name.
const (
	childTask     = "POSTLANE_TEST_CHILD"
	childDatabase = "POSTLANE_TEST_CHILD_DATABASE"
	childName     = "POSTLANE_TEST_CHILD_NAME"
)

// child is a process that a test started. It says what happens in lines.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string
	ended chan struct{}
}

// spawn starts a process of a task on the test's database. It is killed when the test
// ends, if it has not ended by then.
func (s *site) spawn(task, name string) *child {
	s.t.Helper()
	executable, err := os.Executable()
	s.is.NoErr(err)
	cmd := exec.Command(executable)
	cmd.Env = append(os.Environ(), childTask+"="+task, childDatabase+"="+s.pool.Config().ConnString(), childName+"="+name)
	cmd.Stderr = testWriter{s.t}
	stdin, err := cmd.StdinPipe()
	s.is.NoErr(err)
	stdout, err := cmd.StdoutPipe()
	s.is.NoErr(err)
	s.is.NoErr(cmd.Start())
	c := &child{t: s.t, cmd: cmd, stdin: stdin, lines: make(chan string, 1000), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			c.lines <- scanner.Text()
		}
		_ = cmd.Wait() // how it ended is the test's to judge
	}()
	s.t.Cleanup(c.kill)
	c.await("ready")
	return c
}

// await waits for a line.
func (c *child) await(line string) {
	c.t.Helper()
	for {
		if said := await(c.t, c.lines); said == line {
			return
		}
	}
}

func (c *child) say(line string) {
	c.t.Helper()
	_, err := fmt.Fprintln(c.stdin, line)
	is.New(c.t).NoErr(err)
}

func (c *child) signal(signal syscall.Signal) {
	c.t.Helper()
	is.New(c.t).NoErr(c.cmd.Process.Signal(signal))
}

// freeze stops the process, and returns when it has stopped: until then it may still
// read an answer.
func (c *child) freeze() {
	c.t.Helper()
	is := is.New(c.t)
	c.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	_, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	is.NoErr(err)
	is.True(status.Stopped())
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.ended
	_ = c.stdin.Close()
}

func runChild(task string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := func() error {
		pool, err := pgxpool.New(ctx, os.Getenv(childDatabase))
		if err != nil {
			return err
		}
		defer pool.Close()
		g, err := guard.New(guard.Policy{Development: true})
		if err != nil {
			return err
		}
		store, err := delivery.NewStore(pool, delivery.StoreConfig{Guard: g})
		if err != nil {
			return err
		}
		if task == "enqueue" {
			return childEnqueues(ctx, pool)
		}
		return childDispatches(ctx, cancel, store, g)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// childDispatches runs a dispatcher until standard input ends.
func childDispatches(ctx context.Context, cancel context.CancelFunc, store *delivery.Store, g *guard.Guard) error {
	snd, err := sender.New(sender.Config{Guard: g, Timeout: briefTimeout})
	if err != nil {
		return err
	}
	defer snd.Close()
	schedule, err := retry.NewSchedule(0, 100*time.Millisecond)
	if err != nil {
		return err
	}
	d, err := delivery.New(delivery.Config{
		Store: store, Sender: snd, MaxInFlight: 16, Lease: briefLease, Poll: 200 * time.Millisecond, Reclaim: 200 * time.Millisecond,
		Grace: 5 * time.Second, Schedule: schedule, Claimant: os.Getenv(childName),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Observer: delivery.Observer{
			LeasesLost: func(int) { fmt.Println("lost") },
			Settled:    func(o delivery.Observation) { fmt.Println("settled", o.State) },
		},
	})
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Println("ready")
	return d.Run(ctx)
}

// childEnqueues enqueues an event for each line of assets, in a transaction each.
func childEnqueues(ctx context.Context, pool *pgxpool.Pool) error {
	fmt.Println("ready")
	for scanner := bufio.NewScanner(os.Stdin); scanner.Scan(); {
		var events []delivery.Event
		for asset := range slices.Values(strings.Fields(scanner.Text())) {
			events = append(events, event(asset))
		}
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := delivery.Enqueue(ctx, tx, events...)
			return err
		})
		if err != nil {
			return err
		}
		fmt.Println("enqueued")
	}
	return nil
}
