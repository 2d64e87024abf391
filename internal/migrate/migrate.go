package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config says how to migrate. The zero value is a good one.
type Config struct {
	// LockTimeout is how long a migration waits for a lock on a table, and so
	// how long it makes others wait who come after it. Default: 300 ms, below
	// the half second after which an enqueue gives up.
	// A transaction:false statement waits without limit, since breaking off
	// CREATE INDEX CONCURRENTLY leaves an invalid index; such statements take
	// locks that no reader or writer waits for.
	LockTimeout time.Duration

	// Patience is for how long what may pass is tried again, counted from the
	// last progress: a lock that is not to be had, a server that restarts.
	// Waiting for another process that migrates has no limit but the
	// context's. Default: 5 min.
	Patience time.Duration

	// Progress, if not nil, is told of each step, from the calling goroutine.
	Progress func(Step)
}

// Step is something to tell a person who watches a migration.
type Step struct {
	File string        // such as 0004_webhooks.sql; empty where the step is of no file
	Down bool          // undone, not applied
	Took time.Duration // how long it ran, when it is done
	Wait error         // not nil: not done yet, will be tried again, and why
}

// String returns the step as a line of a log.
func (s Step) String() string {
	switch {
	case s.Wait != nil && s.File == "":
		return "waiting: " + s.Wait.Error()
	case s.Wait != nil:
		return "waiting: " + s.File + ": " + s.Wait.Error()
	case s.Down:
		return fmt.Sprintf("undone:  %s in %v", s.File, s.Took.Round(time.Millisecond))
	}
	return fmt.Sprintf("applied: %s in %v", s.File, s.Took.Round(time.Millisecond))
}

func (c Config) withDefaults() Config {
	c.LockTimeout = cmp.Or(c.LockTimeout, 300*time.Millisecond)
	c.Patience = cmp.Or(c.Patience, 5*time.Minute)
	if c.Progress == nil {
		c.Progress = func(Step) {}
	}
	return c
}

// Up applies every migration that is not applied yet, in the order of their
// versions, and returns the names of the files it applied. What it returns
// beside an error is applied and stays so.
//
// It is safe to call from many processes at once, and again after a failure. A
// database of another encoding than UTF8 is refused.
func Up(ctx context.Context, conn *pgx.ConnConfig, files fs.FS, config Config) ([]string, error) {
	return migrate(ctx, conn, files, config, func(all []file, applied map[string]bool) (file, bool) {
		for _, f := range all {
			if !applied[f.version] {
				return f, true
			}
		}
		return file{}, false
	}, false)
}

// Down undoes the last applied migration and returns the name of its file, or
// "" where none is applied.
func Down(ctx context.Context, conn *pgx.ConnConfig, files fs.FS, config Config) (string, error) {
	done := false
	undone, err := migrate(ctx, conn, files, config, func(all []file, applied map[string]bool) (file, bool) {
		if done {
			return file{}, false
		}
		done = true
		return last(all, applied, "")
	}, true)
	return slices.Concat(undone, []string{""})[0], err
}

// DownTo undoes, last first, every applied migration of a version after the
// given one, which is that of a file, or "" to undo them all. It returns the
// names of the files.
func DownTo(ctx context.Context, conn *pgx.ConnConfig, files fs.FS, version string, config Config) ([]string, error) {
	all, err := read(files)
	if err != nil {
		return nil, err
	}
	if version != "" && !slices.ContainsFunc(all, func(f file) bool { return f.version == version }) {
		return nil, fmt.Errorf("there is no migration of version %q", version)
	}
	return migrate(ctx, conn, files, config, func(all []file, applied map[string]bool) (file, bool) {
		return last(all, applied, version)
	}, true)
}

// last returns the last applied migration after a version.
func last(all []file, applied map[string]bool, after string) (file, bool) {
	for _, f := range slices.Backward(all) {
		if f.version <= after {
			break
		}
		if applied[f.version] {
			return f, true
		}
	}
	return file{}, false
}

// migrate runs one migration after the other, as long as next names one.
func migrate(
	ctx context.Context, conn *pgx.ConnConfig, files fs.FS, config Config,
	next func(all []file, applied map[string]bool) (file, bool), down bool,
) ([]string, error) {
	config = config.withDefaults()
	all, err := read(files)
	if err != nil {
		return nil, err
	}
	session, err := open(ctx, conn, config)
	if err != nil {
		return nil, err
	}
	defer session.close()
	if !down {
		if err := session.checkEncoding(ctx); err != nil {
			return nil, err
		}
	}

	var done []string
	for {
		applied, err := session.applied(ctx)
		if err != nil {
			return done, err
		}
		f, found := next(all, applied)
		if !found {
			return done, nil
		}
		if err := session.apply(ctx, f, down); err != nil {
			return done, err
		}
		done = append(done, f.name)
	}
}

// Status is the state of one migration.
type Status struct {
	File    string `json:"file"` // empty for a version that no file has
	Version string `json:"version"`
	Applied bool   `json:"applied"`
}

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// List returns the state of every migration, in the order of their versions.
// A version that the database has and no file is listed too if it looks like
// one of a later release: as long as the files' and higher than all of them.
// Others in the table belong to the application that shares it.
func List(ctx context.Context, db Querier, files fs.FS) ([]Status, error) {
	all, err := read(files)
	if err != nil {
		return nil, err
	}
	applied, err := versions(ctx, db)
	if err != nil {
		return nil, err
	}
	var list []Status
	for _, f := range all {
		list = append(list, Status{File: f.name, Version: f.version, Applied: applied[f.version]})
	}
	if len(all) == 0 {
		return list, nil
	}
	highest := all[len(all)-1].version
	for version := range applied {
		if len(version) == len(highest) && version > highest {
			list = append(list, Status{Version: version, Applied: true})
		}
	}
	slices.SortFunc(list, func(a, b Status) int { return cmp.Compare(a.Version, b.Version) })
	return list, nil
}

// A schema that does not fit the program. Check says which versions it is about.
var (
	ErrBehind = errors.New("the database schema is behind this program")
	ErrAhead  = errors.New("the database schema is ahead of this program")
)

// Check returns nil where the schema is the one that the files make. Otherwise
// the error is ErrBehind or ErrAhead and says what to do. A schema that is both
// counts as behind.
//
// A schema that is ahead is what a release finds while the next one is rolled
// out, and no reason to stop as such: the caller decides.
func Check(ctx context.Context, db Querier, files fs.FS) error {
	list, err := List(ctx, db, files)
	if err != nil {
		return err
	}
	var missing, unknown []string
	for _, status := range list {
		switch {
		case !status.Applied:
			missing = append(missing, status.File)
		case status.File == "":
			unknown = append(unknown, status.Version)
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("%w: not applied yet: %v; run `postlane migrate up`", ErrBehind, missing)
	case len(unknown) > 0:
		return fmt.Errorf("%w: it does not know %v; run the release that does (`postlane migrate up` of an older one changes nothing)", ErrAhead, unknown)
	}
	return nil
}
