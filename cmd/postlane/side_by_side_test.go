package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
)

// The program from before the newest migration works on the schema after it, beside the
// program of now: each sends its own events, both dispatch all of them, and the receivers
// find nothing wrong.
func TestTheProgramBeforeTheNewestMigrationWorksBesideThis(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	programs := []string{buildBeforeNewestMigration(t), build(t)}
	url := pgtest.URL(t)
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
	run(programs[1], "50") // makes the demonstration's own table
	var both sync.WaitGroup
	for _, program := range programs {
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

// buildBeforeNewestMigration builds the program of the commit before the one that last
// changed the schema, from the repository's history.
func buildBeforeNewestMigration(t *testing.T) string {
	t.Helper()
	is := is.New(t)
	root := filepath.Join("..", "..")
	git := func(args ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...)
	}
	said, err := git("log", "-1", "--format=%H", "--", "db/schema").Output()
	newest := strings.TrimSpace(string(said))
	if err == nil && newest == "" {
		err = errors.New("no commit of db/schema")
	}
	var before []byte
	if err == nil {
		before, err = git("archive", newest+"^").Output()
	}
	if err != nil {
		t.Skipf("needs the repository's history: %v", err)
	}
	source := t.TempDir()
	tar := exec.CommandContext(t.Context(), "tar", "-x", "-C", source)
	tar.Stdin = bytes.NewReader(before)
	is.NoErr(tar.Run())
	program := filepath.Join(t.TempDir(), "postlane")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "./cmd/postlane")
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}
