package pgtest

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Heard returns what arrives at a listener of the channel postlane until the word end,
// which it sends through the pool.
func Heard(t testing.TB, pool *pgxpool.Pool, listener *pgx.Conn) (words []string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "NOTIFY postlane, 'end'"); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := listener.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n.Payload == "end" {
			return words
		}
		words = append(words, n.Payload)
	}
}
