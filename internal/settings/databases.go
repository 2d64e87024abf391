package settings

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/urfave/cli/v3"
)

// Database is one of those that a process works with.
type Database struct {
	// Name tells it from the others, and holds no secret: host/database, with the port
	// where that is not PostgreSQL's usual one.
	Name string
	// URL is where it is: a URL or another connection string.
	URL string
	// ListenURL is where to listen for wake-ups; "": as URL.
	ListenURL string
	// ReplicaURL is a standby that lists and pages are read from; "": none.
	ReplicaURL string
}

// ParseDatabases reads what -database-url may hold: one connection string, or several
// URLs with spaces or line ends between them. No comma separates them, since a URL has
// commas where a server has several hosts. Errors repeat nothing of the text, which may
// hold a password.
func ParseDatabases(text string) ([]Database, error) {
	var list []Database
	urls := splitURLs(text)
	for i, url := range urls {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			if len(urls) == 1 {
				return nil, errors.New("is not a PostgreSQL URL or connection string")
			}
			return nil, fmt.Errorf("has %d URLs, of which number %d is not a PostgreSQL URL", len(urls), i+1)
		}
		d := Database{Name: databaseName(config), URL: url}
		if slices.ContainsFunc(list, func(other Database) bool { return other.Name == d.Name }) {
			return nil, fmt.Errorf("names the database %s twice", d.Name)
		}
		list = append(list, d)
	}
	return list, nil
}

// splitURLs splits a list of URLs. What is no list is one connection string, in which
// spaces may be part of a value.
func splitURLs(text string) []string {
	fields := strings.Fields(text)
	for _, field := range fields {
		if !strings.HasPrefix(field, "postgres://") && !strings.HasPrefix(field, "postgresql://") {
			return []string{text}
		}
	}
	return fields
}

func databaseName(c *pgx.ConnConfig) string {
	host := c.Host
	if c.Port != 5432 {
		host = net.JoinHostPort(host, strconv.Itoa(int(c.Port)))
	}
	return host + "/" + cmp.Or(c.Database, c.User)
}

// readDatabases reads where the databases of a command are, and tells refuse what is
// wrong.
func readDatabases(c *cli.Command, refuse func(name, problem string)) []Database {
	text := c.String("database-url")
	if strings.TrimSpace(text) == "" {
		refuse("database-url", "is not set; say where PostgreSQL is, such as postgres://user:password@127.0.0.1:5432/postlane")
		return nil
	}
	list, err := ParseDatabases(text)
	if err != nil {
		refuse("database-url", err.Error())
		return nil
	}
	beside(c, list, "listen-database-url", refuse, func(d *Database) *string { return &d.ListenURL })
	beside(c, list, "replica-url", refuse, func(d *Database) *string { return &d.ReplicaURL })
	chosen := c.String("database")
	if chosen == "" {
		return list
	}
	for _, d := range list {
		if d.Name == chosen {
			return []Database{d}
		}
	}
	refuse("database", fmt.Sprintf("is %q; the databases of %s are %s", chosen, Env("database-url"), strings.Join(Names(list), ", ")))
	return nil
}

// beside reads a second address of each database, in the order of the first ones.
func beside(c *cli.Command, list []Database, name string, refuse func(name, problem string), field func(*Database) *string) {
	text := c.String(name)
	if text == "" {
		return
	}
	urls := splitURLs(text)
	if len(urls) != len(list) {
		refuse(name, fmt.Sprintf("has %d URLs where %s has %d; give one for each, in the same order", len(urls), Env("database-url"), len(list)))
		return
	}
	for i, url := range urls {
		if _, err := pgx.ParseConfig(url); err != nil {
			refuse(name, "is not a PostgreSQL URL")
			return
		}
		*field(&list[i]) = url
	}
}

// Names are the databases' names.
func Names(list []Database) []string {
	names := make([]string, len(list))
	for i, d := range list {
		names[i] = d.Name
	}
	return names
}
