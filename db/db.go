// Package db holds what Postlane is made of: the schema, as migrations in
// dbmate's format, and beside it (in queries/) every statement that the
// library runs.
package db

import (
	"embed"
	"io/fs"
)

//go:embed schema/*.sql
var files embed.FS

// Schema returns the migrations, one file each, named VERSION_name.sql and in
// the order of their versions. Apply them with `postlane migrate up`, with
// dbmate, or with a tool of your own: each file has a "-- migrate:up" and a
// "-- migrate:down" part.
func Schema() fs.FS {
	sub, err := fs.Sub(files, "schema")
	if err != nil {
		panic(err) // the directory is embedded at build time
	}
	return sub
}
