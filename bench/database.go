package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// databases makes databases on a server.
type databases struct{ url string }

func (d databases) exec(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func (d databases) exists(ctx context.Context, name string) (found bool, err error) {
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		return false, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&found)
	return found, err
}

// create makes a database anew, as a copy of a template unless that is "".
func (d databases) create(ctx context.Context, name, template string) error {
	create := "CREATE DATABASE " + name
	if template != "" {
		create += " TEMPLATE " + template + " STRATEGY file_copy"
	}
	return d.exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)", create, "CHECKPOINT")
}

func (d databases) drop(ctx context.Context, name string) error {
	return d.exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

func (d databases) open(ctx context.Context, name string, conns int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(d.url)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.Database = name
	config.MaxConns = int32(conns)
	return pgxpool.NewWithConfig(ctx, config)
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// template names the database that holds the backlog of a measurement, and of others
// that begin with the same.
func (m measurement) template() string {
	kind := ""
	if m.Peer == "watermill-sql" { // whose profiles differ in their tables
		kind = m.Profile
	}
	name := strings.ToLower(fmt.Sprintf("bench %s %s %d of %d", m.Peer, kind, m.Backlog, m.Spread))
	return notInNames.ReplaceAllString(name, "_")
}

// prepare makes the template of a measurement, if it is not there yet.
func (d databases) prepare(ctx context.Context, m *measurement, p peer) error {
	name := m.template()
	if found, err := d.exists(ctx, name); err != nil || found {
		return err
	}
	building := name + "_building"
	if err := d.create(ctx, building, ""); err != nil {
		return err
	}
	pool, err := d.open(ctx, building, 8)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := p.setup(ctx, pool); err != nil {
		return err
	}
	for from := 0; from < m.Backlog; from += bulkSize {
		if err := p.bulk(ctx, pool, bodies(int64(from), min(bulkSize, m.Backlog-from))); err != nil {
			return err
		}
	}
	if _, err := pool.Exec(ctx, "VACUUM (ANALYZE)"); err != nil {
		return err
	}
	pool.Close()
	return d.exec(ctx, "ALTER DATABASE "+building+" RENAME TO "+name)
}
