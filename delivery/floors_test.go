package delivery_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/pgtest/plans"
)

// consume enqueues n deliveries of new streams, claims all there are and settles them.
func (b *bundle) consume(store *delivery.Store, n int) []delivery.Claim {
	b.t.Helper()
	b.enqueue(names(fmt.Sprint(one[int64](b, "SELECT nextval('postlane.fence_seq')")), n)...)
	r := request(1000)
	r.MaxInFlight = 1000
	claims, err := store.Claim(b.ctx, r)
	b.is.NoErr(err)
	b.settle(delivery.Succeeded, claims...)
	return claims
}

// What a transaction wrote before others and commits long after them lies below the floors,
// and is claimed all the same.
func TestAClaimFindsWhatIsCommittedBelowItsFloors(t *testing.T) {
	t.Parallel()
	b, c := setupClock(t)
	sub := b.subscribe()
	tx, err := b.pool.Begin(b.ctx)
	b.is.NoErr(err)
	late, err := delivery.Enqueue(b.ctx, tx, event("late"))
	b.is.NoErr(err)
	for range 4 {
		b.consume(b.store, 150)
		c.advance(510 * time.Millisecond)
	}
	b.is.True(b.store.ReadyFloor(sub) > late[0].Seq)
	b.is.NoErr(tx.Commit(b.ctx))
	found := 0
	for range 8 {
		c.advance(510 * time.Millisecond)
		found += len(b.consume(b.store, 150)) - 150
	}
	b.is.Equal(found, 1)
	b.is.Equal(one[int](b, "SELECT count(*) FROM postlane.deliveries"), 0)
}

// Beside an old snapshot a claim does not step over all that was consumed since, as one
// does that knows nothing.
func TestFloorsSkipWhatAnOldSnapshotKeeps(t *testing.T) {
	t.Parallel()
	b, c, w := setupPlans(t)
	b.subscribe()
	session, err := pgx.ConnectConfig(b.ctx, pgtest.Direct(t, b.pool))
	b.is.NoErr(err)
	defer session.Close(context.WithoutCancel(b.ctx))
	_, err = session.Exec(b.ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM postlane.deliveries LIMIT 1")
	b.is.NoErr(err)
	pages := func(store *delivery.Store) int {
		seen := w.During(func() { b.is.Equal(len(b.consume(store, 150)), 150) })
		return plans.Touched(seen, "DeliveryClaim")
	}
	for range 50 {
		pages(b.store)
	}
	for range 2 { // the floors that are used are those of the look before
		c.advance(510 * time.Millisecond)
		pages(b.store)
	}
	with := pages(b.store)
	other, err := delivery.NewStore(b.pool, delivery.StoreConfig{})
	b.is.NoErr(err)
	// 50 rows of what was consumed are on a page, and a claim looks three times.
	if without := pages(other); with+50*150/50*2 > without {
		t.Errorf("%d pages with floors, %d without", with, without)
	}
}
