package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/db"
	"github.com/postlane-go/postlane/internal/migrate"
	"github.com/postlane-go/postlane/internal/pgtest/server"
)

// schemaTemplate returns the name of a database that has the schema, making it
// if this is the first process to need it. It is named by what the migrations
// say, so another schema has another template.
var schemaTemplate = sync.OnceValues(func() (string, error) {
	shared, err := server.Use()
	if err != nil {
		return "", err
	}
	sum, err := hash(db.Schema())
	if err != nil {
		return "", err
	}
	name := "postlane_template_" + sum
	if err := makeTemplate(shared, name, db.Schema()); err != nil {
		return "", fmt.Errorf("make the template of test databases: %w", err)
	}
	return name, nil
})

// makeTemplate makes a template unless it is there. It has its name only when
// it is whole, so one whose maker was killed is never used.
func makeTemplate(shared server.Server, name string, schema fs.FS) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	config, err := pgx.ParseConfig(shared.URL)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	// Until the connection closes; others that need the template wait for it.
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", "postlane test templates"); err != nil {
		return err
	}
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists); err != nil || exists {
		return err
	}
	building := name + "_building"
	for _, sql := range []string{
		"DROP DATABASE IF EXISTS " + building + " WITH (FORCE)",
		"CREATE DATABASE " + building + " TEMPLATE template0",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	target := config.Copy()
	target.Database = building
	if _, err := migrate.Up(ctx, target, schema, migrate.Config{}); err != nil {
		return err
	}
	for _, sql := range []string{
		"ALTER DATABASE " + building + " ALLOW_CONNECTIONS false", // one would be in the way of copying
		"ALTER DATABASE " + building + " RENAME TO " + name,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// hash returns what differs between any two schemas.
func hash(schema fs.FS) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(schema, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(schema, path)
		_, _ = fmt.Fprintf(sum, "%s %d %s", path, len(content), content) // a hash never fails
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:6]), err
}

func maxConnections(shared server.Server) int {
	const fallback = 100 // PostgreSQL's default
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, shared.URL)
	if err != nil {
		return fallback
	}
	defer conn.Close(ctx)
	var most int
	if err := conn.QueryRow(ctx, "SELECT current_setting('max_connections')::int").Scan(&most); err != nil {
		return fallback
	}
	return most
}
