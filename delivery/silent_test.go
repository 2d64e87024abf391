package delivery_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
)

// silence stops its pool's sessions before a statement, as a process is stopped that is
// frozen there.
type silence struct {
	before string
	began  chan struct{}
	ends   chan struct{}
}

func (s silence) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(data.SQL, "-- name: "+s.before+" ") {
		close(s.began)
		<-s.ends
	}
	return ctx
}

func (s silence) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Whoever is frozen in the middle of a transaction holds its locks, and what is locked is
// stepped over: the server ends the session before long.
func TestWhatASilentTransactionHoldsIsReclaimedByOthers(t *testing.T) {
	t.Parallel()
	s := siteOf(setup(t))
	sub := s.subscribe()
	s.enqueue("a", "a")
	claims, err := s.store.Claim(s.ctx, delivery.ClaimRequest{Claimant: "test", Max: 10, MaxInFlight: 10, Lease: time.Millisecond})
	s.is.NoErr(err)
	s.is.Equal(len(claims), 1)
	config, err := pgxpool.ParseConfig(s.pool.Config().ConnString())
	s.is.NoErr(err)
	frozen := silence{"StreamWake", make(chan struct{}), make(chan struct{})}
	config.ConnConfig.Tracer = frozen
	pool, err := pgxpool.NewWithConfig(s.ctx, config)
	s.is.NoErr(err)
	t.Cleanup(pool.Close)
	done := make(chan error, 1)
	go func() {
		_, err := storeOn(t, pool).Reclaim(s.ctx, 10)
		done <- err
	}()
	await(t, frozen.began)
	reclaim := func() int {
		reclaimed, err := s.store.Reclaim(s.ctx, 10)
		s.is.NoErr(err)
		return len(reclaimed)
	}
	s.is.Equal(reclaim(), 0)
	s.eventually(func() bool { return reclaim() == 1 })
	close(frozen.ends)
	s.is.True(await(t, done) != nil)
	s.is.Equal(s.counts(sub), "pending:2 ")
	s.is.Equal(s.claim(10)[0].Attempt, 2)
}
