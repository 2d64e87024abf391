package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
)

// build returns the program.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "postlane")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

func TestThreeProcessesDispatchAndTheReceiverFindsNothingWrong(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	program := build(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "dev", "-once", "-events", "400", "-streams", "20", "-workers", "3",
		"-dir", t.TempDir(), "-database-url", pgtest.URL(t))
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.String(), log.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var v map[string]float64
	is.NoErr(json.Unmarshal([]byte(lines[len(lines)-1]), &v))
	is.Equal(v["events"], 400.0)
	is.Equal(v["delivered"], v["deliveries"])
	is.True(v["deliveries"] > 400) // the second subscription wants some of them
	for _, name := range []string{"dead", "lost", "out_of_order", "overlaps", "duplicates"} {
		is.Equal(v[name], 0.0)
	}
}

func TestServeStopsCleanlyOnSIGTERM(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	cmd := exec.CommandContext(t.Context(), build(t), "serve", "-listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(),
		"POSTLANE_DATABASE_URL="+pgtest.URL(t),
		"POSTLANE_SECRET_KEY="+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)),
		"POSTLANE_OPERATOR_KEY="+strings.Repeat("k", 40))
	stderr, err := cmd.StderrPipe()
	is.NoErr(err)
	is.NoErr(cmd.Start())
	lines := bufio.NewScanner(stderr)
	listening := false
	for lines.Scan() {
		if strings.Contains(lines.Text(), "listening") && !listening {
			listening = true
			is.NoErr(cmd.Process.Signal(syscall.SIGTERM))
		}
	}
	is.True(listening)
	is.NoErr(cmd.Wait()) // exit code 0
}

// A shell is told which commands there are.
func TestShellCompletion(t *testing.T) {
	t.Parallel()
	program := build(t)
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "pwsh"} {
		if !strings.Contains(run("completion", shell), "--generate-shell-completion") {
			t.Errorf("completion %s prints no script", shell)
		}
	}
	for _, command := range []string{"serve", "subscriptions", "outbox", "completion"} {
		if !strings.Contains(run("--generate-shell-completion"), command+":") {
			t.Errorf("%s is not completed", command)
		}
	}
	if got := run("outbox", "--generate-shell-completion"); !strings.Contains(got, "retry:") || strings.Contains(got, "serve:") {
		t.Errorf("outbox is completed with\n%s", got)
	}
}
