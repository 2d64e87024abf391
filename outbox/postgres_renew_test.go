package outbox_test

import (
	"fmt"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/outbox"
)

// Renewing touches no index, and a page has room for it: where PostgreSQL can clean
// the pages, renewals are HOT updates and do not bloat the table. It can't while any
// transaction of the server that writes is open, as those of other tests are, so this
// one has a server of its own.
func TestRenewalsAreHOT(t *testing.T) {
	t.Parallel()
	d := &database{pgtest.NewServer(t).Pool, is.New(t), t}
	const queues, rounds = 40, 100
	for q := range queues {
		d.stage(fmt.Sprint("q", q), fmt.Sprint("m", q), fmt.Sprint("n", q))
	}
	store := d.store(outbox.StoreConfig{})
	claims, err := store.Claim(t.Context(), 2*queues)
	d.is.NoErr(err)
	d.is.Equal(len(claims), 2*queues)

	updates := func(least int64) (all, hot int64) {
		for { // what a session did is reported when it has a moment
			_, err := d.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
			d.is.NoErr(err)
			d.is.NoErr(d.QueryRow(t.Context(), "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'outbox_leases'").Scan(&all, &hot))
			if all >= least {
				return all, hot
			}
		}
	}
	best := 0.
	for try := 0; try < 10 && best < 0.95; try++ { // the server's own upkeep writes too
		allBefore, hotBefore := updates(0)
		for range rounds {
			d.is.NoErr(store.Renew(t.Context(), claims...))
		}
		all, hot := updates(allBefore + rounds*queues)
		best = max(best, float64(hot-hotBefore)/float64(all-allBefore))
	}
	t.Logf("at best %.3f of the renewals were HOT", best)
	d.is.True(best >= 0.95)
}
