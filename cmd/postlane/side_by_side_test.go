package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
)

// The program from before a migration works on the schema after it, beside the program
// that brings it: each sends its own events, both dispatch all of them, and the receivers
// find nothing wrong. It tries the newest migration, or as many of the newest as
// POSTLANE_TEST_MIGRATIONS says.
func TestTheProgramBeforeAMigrationWorksBesideTheNext(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n, err := strconv.Atoi(cmp.Or(os.Getenv("POSTLANE_TEST_MIGRATIONS"), "1"))
	is.NoErr(err)
	said, err := git(t, "log", fmt.Sprint("-", n), "--diff-filter=A", "--format=%H", "--", "db/schema").Output()
	commits := strings.Fields(string(said))
	if err != nil || len(commits) == 0 {
		t.Skipf("needs the repository's history: %v", err)
	}
	for i, commit := range commits {
		after := build
		if i > 0 {
			after = func(t *testing.T) string { return buildCommit(t, commit) }
		}
		t.Run(commit[:8], func(t *testing.T) { sideBySide(t, buildCommit(t, commit+"^"), after(t)) })
	}
}

func sideBySide(t *testing.T, before, after string) {
	is := is.New(t)
	url := pgtest.EmptyURL(t)
	secret := base64.StdEncoding.AppendEncode(nil, bytes.Repeat([]byte{7}, 32))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	run := func(program, events string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "secret.key"), secret, 0o600); err != nil {
			t.Error(err)
			return
		}
		cmd := exec.CommandContext(ctx, program, "dev", "-once", "-events", events, "-streams", "50", "-dir", dir, "-database-url", url)
		cmd.Env = append(os.Environ(), "POSTLANE_LISTEN=127.0.0.1:0")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, said)
		}
	}
	run(after, "50") // migrates, and makes the demonstration's own table
	var both sync.WaitGroup
	for _, program := range []string{before, after} {
		both.Go(func() { run(program, "500") })
	}
	both.Wait()
	conn, err := pgx.Connect(t.Context(), url)
	is.NoErr(err)
	defer conn.Close(context.Background())
	var claimants, left int
	is.NoErr(conn.QueryRow(t.Context(), "SELECT (SELECT count(DISTINCT claimant) FROM postlane.attempts), (SELECT count(*) FROM postlane.deliveries)").Scan(&claimants, &left))
	is.True(claimants >= 2)
	is.Equal(left, 0)
}

// buildCommit builds the program of a commit of the repository's history.
func buildCommit(t *testing.T, commit string) string {
	t.Helper()
	is := is.New(t)
	files, err := git(t, "archive", commit).Output()
	if err != nil {
		t.Skipf("needs the repository's history: %v", err)
	}
	source := t.TempDir()
	tar := exec.CommandContext(t.Context(), "tar", "-x", "-C", source)
	tar.Stdin = bytes.NewReader(files)
	is.NoErr(tar.Run())
	program := filepath.Join(t.TempDir(), "postlane")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "./cmd/postlane")
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

func git(t *testing.T, args ...string) *exec.Cmd {
	return exec.CommandContext(t.Context(), "git", append([]string{"-C", filepath.Join("..", "..")}, args...)...)
}
