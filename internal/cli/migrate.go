package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/settings"
)

func (a *app) migrateCommand() *cli.Command {
	flags := append(settings.Flags(settings.NeedDatabase), jsonFlag())
	return &cli.Command{
		Name:  "migrate",
		Usage: "bring the database schema up to date, or take it back",
		Commands: []*cli.Command{
			{Name: "up", Usage: "apply every migration that is missing; safe from many processes at once", Flags: flags, Action: a.each(a.migrateUp)},
			{Name: "down", Usage: "undo the last migration, and the data that only it had room for", Flags: flags, Action: a.each(a.migrateDown)},
			{Name: "status", Usage: "list the migrations and whether they are applied", Flags: flags, Action: a.each(a.migrateStatus)},
		},
	}
}

func (a *app) migrateUp(ctx context.Context, c *cli.Command) error {
	conn, err := a.migrateConn(ctx, c)
	if err != nil {
		return err
	}
	applied, err := migrate.Up(ctx, conn, db.Schema(), a.migrateConfig())
	if err != nil {
		return err
	}
	return a.print(c, map[string][]string{"applied": append([]string{}, applied...)}, func(w io.Writer) {
		if len(applied) == 0 {
			fmt.Fprintln(w, "the schema is up to date")
		}
		for _, file := range applied {
			fmt.Fprintln(w, "applied", file)
		}
	})
}

func (a *app) migrateDown(ctx context.Context, c *cli.Command) error {
	conn, err := a.migrateConn(ctx, c)
	if err != nil {
		return err
	}
	undone, err := migrate.Down(ctx, conn, db.Schema(), a.migrateConfig())
	if err != nil {
		return err
	}
	return a.print(c, map[string]string{"undone": undone}, func(w io.Writer) {
		if undone == "" {
			fmt.Fprintln(w, "no migration is applied")
			return
		}
		fmt.Fprintln(w, "undone", undone)
	})
}

func (a *app) migrateStatus(ctx context.Context, c *cli.Command) error {
	s, err := settings.Read(c, settings.NeedDatabase)
	if err != nil {
		return usageErrors(err)
	}
	d, err := a.one(ctx, c, s)
	if err != nil {
		return err
	}
	pool, err := connect(ctx, d.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	list, err := migrate.List(ctx, pool, db.Schema())
	if err != nil {
		return err
	}
	return a.print(c, map[string]any{"migrations": list}, func(w io.Writer) {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "VERSION\tFILE\tAPPLIED")
		for _, m := range list {
			fmt.Fprintf(t, "%s\t%s\t%v\n", m.Version, m.File, m.Applied)
		}
		t.Flush()
	})
}

func (a *app) migrateConn(ctx context.Context, c *cli.Command) (*pgx.ConnConfig, error) {
	if _, err := arguments(c); err != nil {
		return nil, err
	}
	s, err := settings.Read(c, settings.NeedDatabase)
	if err != nil {
		return nil, usageErrors(err)
	}
	d, err := a.one(ctx, c, s)
	if err != nil {
		return nil, err
	}
	return pgx.ParseConfig(d.URL)
}

func (a *app) migrateConfig() migrate.Config {
	return migrate.Config{Progress: func(s migrate.Step) {
		if a.database != "" {
			fmt.Fprintf(a.err, "%s: ", a.database)
		}
		fmt.Fprintln(a.err, s)
	}}
}
