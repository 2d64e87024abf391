// Package cli is the postlane command.
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/audit"
	"github.com/postlane-go/postlane/internal/settings"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// errUsage is matched by errors about how the command was called.
var errUsage = errors.New("usage")

// app is one run of the command.
type app struct {
	in       io.Reader
	out, err io.Writer
	// audit is the log of the database that open connected to.
	audit *audit.Log
	// database is the name of the one that is worked on, where there are several.
	database string
}

// Run runs the command and returns its exit code: 0 only on success, 2 for wrong usage.
// Results go to out, everything else to errOut.
func Run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{in: in, out: out, err: errOut}
	root := a.root()
	err := known(root, args)
	if err == nil {
		err = root.Run(ctx, args)
	}
	if err == nil {
		return exitOK
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(errOut, "postlane:", line)
	}
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitFailed
}

func (a *app) root() *cli.Command {
	root := &cli.Command{
		Name:                  "postlane",
		Usage:                 "send webhooks and messages from your own PostgreSQL transactions",
		Version:               version(),
		EnableShellCompletion: true,
		ConfigureShellCompletionCommand: func(c *cli.Command) {
			c.Hidden, c.Usage = false, "print a script by which a shell completes commands: bash, zsh, fish or pwsh"
		},
		Commands: []*cli.Command{
			a.devCommand(), a.serveCommand(), a.migrateCommand(), a.receiveCommand(),
			a.subscriptionsCommand(), a.eventsCommand(), a.eventTypesCommand(), a.deliveriesCommand(), a.streamsCommand(), a.outboxCommand(),
			a.keysCommand(), a.secretsCommand(), a.auditCommand(), a.pruneCommand(), a.benchCommand(),
		},
	}
	a.prepare(root)
	return root
}

// known looks for a command that there is not before flags are parsed: it is the better
// thing to complain about.
func known(c *cli.Command, args []string) error {
	for _, arg := range args[1:] {
		if strings.HasPrefix(arg, "-") || len(c.Commands) == 0 {
			return nil
		}
		sub := c.Command(arg)
		if sub == nil {
			if arg == "help" || arg == "completion" {
				return nil
			}
			return usage(c, "there is no command %q", arg)
		}
		c = sub
	}
	return nil
}

// prepare gives a command and those below it what all have in common.
func (a *app) prepare(c *cli.Command) {
	c.Writer, c.ErrWriter, c.Reader = a.out, a.err, a.in
	c.ExitErrHandler = func(context.Context, *cli.Command, error) {}
	c.OnUsageError = func(_ context.Context, c *cli.Command, err error, _ bool) error {
		return usage(c, "%v", err)
	}
	if len(c.Commands) > 0 && c.Action == nil {
		c.Action = func(_ context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return usage(c, "there is no command %q", c.Args().First())
			}
			if err := cli.ShowSubcommandHelp(c); err != nil {
				return err
			}
			return usage(c, "say which command")
		}
	}
	for _, sub := range c.Commands {
		a.prepare(sub)
	}
}

// usage is an error about how a command was called.
func usage(c *cli.Command, format string, args ...any) error {
	return usageError{fmt.Sprintf(format, args...) + "; see: " + c.FullName() + " -help"}
}

type usageError struct{ text string }

func (e usageError) Error() string        { return e.text }
func (e usageError) Is(target error) bool { return target == errUsage }

// arguments returns the command's arguments, which must be exactly as many as names.
func arguments(c *cli.Command, names ...string) ([]string, error) {
	if got := c.Args().Slice(); len(got) == len(names) {
		return got, nil
	}
	if len(names) == 0 {
		return nil, usage(c, "unexpected %q", c.Args().First())
	}
	return nil, usage(c, "needs %s", strings.Join(names, " "))
}

// jsonFlag is a new one each time: a flag keeps what it was set to.
func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "print JSON, for programs"} }

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func (a *app) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.err, nil))
}

// open connects to the database of a command and returns its store.
func (a *app) open(ctx context.Context, c *cli.Command, need settings.Need) (settings.Settings, *pgxpool.Pool, *delivery.Store, error) {
	s, err := settings.Read(c, need)
	if err != nil {
		return s, nil, nil, usageErrors(err)
	}
	d, err := a.one(ctx, c, s)
	if err != nil {
		return s, nil, nil, err
	}
	pool, err := connect(ctx, d.URL)
	if err != nil {
		return s, nil, nil, err
	}
	store, err := newStore(s, pool)
	if err != nil {
		pool.Close()
		return s, nil, nil, err
	}
	a.audit = audit.New(pool)
	return s, pool, store, nil
}

func newStore(s settings.Settings, pool *pgxpool.Pool) (*delivery.Store, error) {
	guard, err := s.Guard()
	if err != nil {
		return nil, err
	}
	return delivery.NewStore(pool, delivery.StoreConfig{Guard: guard, Keyring: s.Keyring})
}

// usageErrors makes errors of configuration errors of usage, a line each.
func usageErrors(err error) error { return usageError{err.Error()} }

// print writes v as JSON where that was asked for, else what human writes. Where there are
// several databases it says first which one it is about.
func (a *app) print(c *cli.Command, v any, human func(w io.Writer)) error {
	if c.Bool("json") {
		return a.printJSON(v)
	}
	if a.database != "" {
		fmt.Fprintf(a.out, "%s:\n", a.database)
	}
	human(a.out)
	return nil
}

// printJSON prints v on a line. No command prints an object without members.
func (a *app) printJSON(v any) error {
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	if members, ok := bytes.CutPrefix(line.Bytes(), []byte("{")); ok && a.database != "" {
		name, err := json.Marshal(a.database)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.out, `{"database":%s,%s`, name, members)
		return err
	}
	_, err := a.out.Write(line.Bytes())
	return err
}
