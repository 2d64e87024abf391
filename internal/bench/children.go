package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/postlane-go/postlane/internal/receiver"
	"github.com/postlane-go/postlane/internal/settings"
)

// receive starts a receiver in a process of its own that only counts, and returns its
// URL.
func (r *run) receive(ctx context.Context) (string, error) {
	_, address, err := r.spawn(ctx, nil, "receiving on ", "receive", "-light", "-address", "127.0.0.1:0", "-delay", r.Delay.String())
	return strings.TrimSuffix(address, "/"), err
}

// serve starts a server in a process of its own on databases, waits until wake-ups reach
// it from each, and returns its process id.
func (r *run) serve(ctx context.Context, databases []*database, flags ...string) (pid int, err error) {
	var list []settings.Database
	for _, d := range databases {
		list = append(list, settings.Database{URL: d.url})
	}
	s := settings.Settings{Databases: list, Listen: "127.0.0.1:0", Mode: settings.Development}
	cmd, address, err := r.spawn(ctx, s.Environ(make([]byte, 32)), "msg=listening address=", append([]string{"serve", "-grace", "1s"}, flags...)...)
	if err != nil {
		return 0, err
	}
	for {
		type state struct {
			Listening bool `json:"listening"`
		}
		var ready struct {
			state
			Databases []state `json:"databases"` // where there are several
		}
		if err := getJSON(ctx, "http://"+address+"/readyz", &ready); err != nil {
			return 0, err
		}
		if ready.Listening || len(ready.Databases) > 0 && !slices.Contains(ready.Databases, state{}) {
			return cmd.Process.Pid, nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// spawn starts this program again as another command, and returns the word that follows
// marker in what it says. Its warnings are passed on; it ends with the run.
func (r *run) spawn(ctx context.Context, environ []string, marker string, args ...string) (*exec.Cmd, string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	cmd.Env = environ
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	r.undo = append(r.undo, func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // what it makes of its end is of no interest
		return nil
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), marker); ok {
			word, _, _ := strings.Cut(rest, " ")
			go r.passOn(lines)
			return cmd, word, nil
		}
	}
	return nil, "", fmt.Errorf("postlane %s did not start", args[0])
}

// passOn keeps a child's pipe empty, and lets its warnings be seen.
func (r *run) passOn(lines *bufio.Scanner) {
	for lines.Scan() {
		if text := lines.Text(); strings.Contains(text, "level=WARN") || strings.Contains(text, "level=ERROR") {
			fmt.Fprintln(r.Log, text)
		}
	}
}

// received returns how many requests a receiver has counted.
func received(ctx context.Context, endpoint string) (int, error) {
	var v receiver.Verdict
	err := getJSON(ctx, endpoint+"/", &v)
	return int(v.Requests), err
}

// receivedAll fails unless a receiver has counted exactly n requests.
func receivedAll(ctx context.Context, endpoint string, n int) error {
	if got, err := received(ctx, endpoint); err != nil || got != n {
		return errors.Join(err, fmt.Errorf("the receiver has counted %d requests of %d", got, n))
	}
	return nil
}

func getJSON(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("the answer of %s: %w", url, err)
	}
	return nil
}
