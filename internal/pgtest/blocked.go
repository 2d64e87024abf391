package pgtest

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// WaitForBlocked waits until at least n sessions of the pool's database wait for a
// lock, and fails the test where that takes a minute.
func WaitForBlocked(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for {
		var blocked int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&blocked)
		if err != nil {
			t.Fatal(err)
		}
		if blocked >= n {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d sessions wait for a lock, not %d", blocked, n)
		}
	}
}
