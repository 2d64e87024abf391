package db_test

import (
	"fmt"
	"io/fs"

	"github.com/postlane-go/postlane/db"
)

// The migrations are files in dbmate's format, for a migration tool of your own.
func ExampleSchema() {
	first, err := fs.Glob(db.Schema(), "0004_*.sql")
	fmt.Println(first, err)
	// Output: [0004_webhooks.sql] <nil>
}
