package migrate_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// Whoever begins with dbmate may go on with ours, and the other way round.
func TestDbmateAndOursAgree(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	run := dbmate(t, pgtest.EmptyURL(t))
	ours := pgtest.EmptyURL(t)
	all := names(t)
	status := func(url string) (applied int) {
		list, err := migrate.List(t.Context(), connect(t, url), db.Schema())
		is.NoErr(err)
		for _, s := range list {
			if s.Applied {
				applied++
			}
		}
		return applied
	}

	// All by dbmate.
	run.do("up")
	is.Equal(status(run.url), len(all))
	is.NoErr(migrate.Check(t.Context(), connect(t, run.url), db.Schema()))
	byDbmate := objects(t, run.url)

	// All by ours.
	_, err := migrate.Up(t.Context(), connConfig(t, ours), db.Schema(), migrate.Config{})
	is.NoErr(err)
	is.True(strings.Contains(run.on(ours).do("status"), "Pending: 0"))
	equal(t, objects(t, ours), byDbmate) // the table of versions too

	// Down by one, up by the other.
	run.on(ours).do("down")
	is.True(errors.Is(migrate.Check(t.Context(), connect(t, ours), db.Schema()), migrate.ErrBehind))
	applied, err := migrate.Up(t.Context(), connConfig(t, ours), db.Schema(), migrate.Config{})
	is.NoErr(err)
	is.Equal(applied, all[len(all)-1:])
	undone, err := migrate.Down(t.Context(), connConfig(t, ours), db.Schema(), migrate.Config{})
	is.NoErr(err)
	is.Equal(undone, all[len(all)-1])
	is.True(strings.Contains(run.on(ours).do("status"), "Pending: 1"))
	run.on(ours).do("up")
	equal(t, objects(t, ours), byDbmate)
}

// BC-62 and BC-64 by dbmate itself.
func TestBC64_DbmateDownToNothingAndUpAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	run := dbmate(t, pgtest.EmptyURL(t))
	empty := objects(t, run.url)
	run.do("up")
	before := objects(t, run.url)
	for range names(t) {
		run.do("down")
	}
	equal(t, withoutVersions(objects(t, run.url)), empty)
	is.Equal(versions(t, run.url), []string{})
	run.do("up")
	equal(t, objects(t, run.url), before)
}

// BC-63: the dump is the same each time, and the code generator reads it.
func TestBC63_DumpIsStableAndGeneratesTheSameCode(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	run := dbmate(t, pgtest.EmptyURL(t))
	needPgDump(t, run.url)
	run.do("up")
	first := run.dump()
	is.True(strings.Contains(first, "CREATE TABLE postlane.subscriptions"))
	is.Equal(run.dump(), first)

	for range names(t) {
		run.do("down")
	}
	run.do("up")
	is.Equal(run.dump(), first) // BC-64, by pg_dump

	t.Run("sqlc", func(t *testing.T) {
		is := is.New(t)
		if os.Getenv("POSTLANE_TEST_COMPLETE") == "" {
			lacks(t, "building sqlc takes minutes")
		}
		root, err := filepath.Abs("../..")
		is.NoErr(err)
		config, err := os.ReadFile(filepath.Join(root, "sqlc.yaml"))
		is.NoErr(err)
		work := t.TempDir()
		is.NoErr(os.WriteFile(filepath.Join(work, "schema.sql"), []byte(first), 0o600))
		is.NoErr(os.CopyFS(filepath.Join(work, "db/queries"), os.DirFS(filepath.Join(root, "db/queries"))))
		config = regexp.MustCompile(`(?m)schema: .*$`).ReplaceAll(config, []byte("schema: schema.sql"))
		// A dump spells timestamptz out, which sqlc takes for a type of another name.
		config = regexp.MustCompile(`(?m)^(.*db_type: )(timestamptz.*)$`).ReplaceAll(config, []byte("$1$2\n${1}pg_catalog.$2"))
		is.NoErr(os.WriteFile(filepath.Join(work, "sqlc.yaml"), config, 0o600))

		generate := osexec.Command("go", "tool", "-modfile=tools/sqlc.mod", "sqlc", "generate", "-f", filepath.Join(work, "sqlc.yaml"))
		generate.Dir = root
		generate.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := generate.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		got, want := goLines(t, filepath.Join(work, "internal/dbgen")), goLines(t, filepath.Join(root, "internal/dbgen"))
		equal(t, got, want)
		is.Equal(len(got), len(want))
	})
}

// dbmateRun runs dbmate on one database.
type dbmateRun struct {
	t      *testing.T
	binary string
	schema string // directory of the migrations
	url    string
}

func dbmate(t *testing.T, url string) dbmateRun {
	t.Helper()
	binary, err := installed()
	if err != nil {
		lacks(t, "dbmate can't be installed: %v", err)
	}
	schema := t.TempDir()
	is.New(t).NoErr(os.CopyFS(schema, db.Schema()))
	return dbmateRun{t: t, binary: binary, schema: schema, url: url}
}

func (d dbmateRun) on(url string) dbmateRun {
	d.url = url
	return d
}

func (d dbmateRun) do(command string) string {
	d.t.Helper()
	return d.run("--no-dump-schema", command)
}

func (d dbmateRun) dump() string {
	d.t.Helper()
	file := filepath.Join(d.t.TempDir(), "schema.sql")
	d.run("--schema-file", file, "dump")
	dump, err := os.ReadFile(file)
	is.New(d.t).NoErr(err)
	return string(dump)
}

func (d dbmateRun) run(arguments ...string) string {
	d.t.Helper()
	cmd := osexec.Command(d.binary, append([]string{"--url", d.url, "--migrations-dir", d.schema}, arguments...)...)
	said, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("dbmate %v: %v\n%s", arguments, err, said)
	}
	return string(said)
}

// installed returns the path of dbmate's binary, from the npm package that
// testdata/dbmate names, installed beside the user's other caches.
var installed = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	wanted := os.DirFS("testdata/dbmate")
	lock, err := fs.ReadFile(wanted, "package-lock.json")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(lock)
	dir := filepath.Join(cache, "postlane", "dbmate-"+hex.EncodeToString(sum[:4]))
	binary := filepath.Join(dir, "node_modules/.bin/dbmate")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Another test process may be installing it.
	guard, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer guard.Close()
	if err := syscall.Flock(int(guard.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := fs.ReadFile(wanted, name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", err
		}
	}
	// Not "ci": the lock need not have every platform's binary.
	install := osexec.Command("npm", "install", "--no-save", "--no-audit", "--no-fund")
	install.Dir = dir
	if said, err := install.CombinedOutput(); err != nil {
		return "", errors.Join(err, errors.New(string(said)))
	}
	return binary, nil
})

// needPgDump looks for a pg_dump that may dump that server: one not older.
func needPgDump(t *testing.T, url string) {
	t.Helper()
	said, err := osexec.Command("pg_dump", "--version").Output()
	if err != nil {
		lacks(t, "no pg_dump: %v", err)
	}
	client := major(string(said))
	if server := major(column(t, url, "SHOW server_version")[0]); client < server {
		lacks(t, "pg_dump is of PostgreSQL %d, the server of %d", client, server)
	}
}

func major(version string) int {
	number, _ := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(version))
	return number
}

// goLines returns the lines of a directory's Go files, each with its file.
func goLines(t *testing.T, dir string) (lines []string) {
	t.Helper()
	is := is.New(t)
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	is.NoErr(err)
	is.True(len(paths) > 0)
	for _, path := range paths {
		content, err := os.ReadFile(path)
		is.NoErr(err)
		for line := range strings.Lines(string(content)) {
			lines = append(lines, filepath.Base(path)+": "+line)
		}
	}
	return lines
}
