package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v3"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/keys"
	"github.com/postlane-go/postlane/internal/pooler"
	"github.com/postlane-go/postlane/internal/settings"
)

// each runs an action on every database of the command, one after another, whatever
// becomes of the others. Its output names the database where there are several.
func (a *app) each(action cli.ActionFunc) cli.ActionFunc {
	return func(ctx context.Context, c *cli.Command) error {
		s, err := settings.Read(c, settings.NeedDatabase)
		if err != nil || len(s.Databases) == 1 {
			return action(ctx, c) // which says all that is wrong
		}
		var failed error
		for _, d := range s.Databases {
			a.database = d.Name
			err := action(ctx, c)
			if errors.Is(err, errUsage) || ctx.Err() != nil {
				return errors.Join(failed, err)
			}
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", d.Name, err))
			}
		}
		return failed
	}
}

// one returns the database of a command that works on one of them.
func (a *app) one(ctx context.Context, c *cli.Command, s settings.Settings) (settings.Database, error) {
	if len(s.Databases) == 1 {
		return s.Databases[0], nil
	}
	if a.database == "" {
		if err := a.locate(ctx, c, s); err != nil {
			return settings.Database{}, err
		}
	}
	for _, d := range s.Databases {
		if d.Name == a.database {
			return d, nil
		}
	}
	return settings.Database{}, usage(c, "say by -database which it is about: %s", strings.Join(settings.Names(s.Databases), ", "))
}

// onlyOne refuses a list of databases, for commands that make what they need themselves.
func onlyOne(c *cli.Command) error {
	if list, err := settings.ParseDatabases(c.String("database-url")); err == nil && len(list) > 1 {
		return usage(c, "%s has %d databases; this works with one", settings.Env("database-url"), len(list))
	}
	return nil
}

// locate finds which database has the subscription or key that the command's first
// argument names, if it names one.
func (a *app) locate(ctx context.Context, c *cli.Command, s settings.Settings) error {
	id := c.Args().First()
	isKey := strings.HasPrefix(id, "key_")
	if !isKey && !strings.HasPrefix(id, "sub_") {
		return nil
	}
	var away error
	for _, d := range s.Databases {
		has, err := holds(ctx, d, id, isKey)
		if has {
			a.database = d.Name
			return nil
		}
		if err != nil {
			away = errors.Join(away, fmt.Errorf("%s: %w", d.Name, err))
		}
	}
	switch {
	case away != nil:
		return fmt.Errorf("%s is in no database that answers: %w", id, away)
	case isKey:
		return keys.ErrNotFound
	}
	return delivery.ErrNotFound
}

// holds reports whether a database has a key, or else a subscription, of an id.
func holds(ctx context.Context, d settings.Database, id string, isKey bool) (bool, error) {
	pool, err := connect(ctx, d.URL)
	if err != nil {
		return false, err
	}
	defer pool.Close()
	if isKey {
		return keys.New(pool, "").Has(ctx, id)
	}
	sub, err := delivery.ParseSubscriptionID(id)
	if err != nil {
		return false, err
	}
	store, err := delivery.NewStore(pool, delivery.StoreConfig{})
	if err != nil {
		return false, err
	}
	_, err = store.Subscription(ctx, sub)
	if errors.Is(err, delivery.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// connect returns a pool of a database that answers.
func connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := newPool(ctx, url)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("cannot connect to the database: %w", err)
	}
	if err := pooler.CheckStatements(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// newPool returns a pool that connects when it is used.
func newPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("%s is not a PostgreSQL URL", settings.Env("database-url"))
	}
	config.ConnConfig.RuntimeParams["application_name"] = "postlane"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the database: %w", err)
	}
	return pool, nil
}
