package pooler_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/pooler"
	"github.com/postlane-go/postlane/internal/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatPreparesIsRefusedBehindATransactionPoolerOnly(t *testing.T) {
	t.Parallel()
	direct := pgtest.DirectURL(t)
	for name, c := range map[string]struct {
		url  string
		lost map[string]bool // modes of pgx whose statements are
	}{
		"direct":      {url: direct},
		"session":     {url: pgtest.ThroughPooler(t, direct, postgres.SessionMode)},
		"transaction": {url: pgtest.ThroughPooler(t, direct, postgres.TransactionMode), lost: map[string]bool{"cache_statement": true, "describe_exec": true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, mode := range []string{"cache_statement", "describe_exec", "cache_describe", "exec", "simple_protocol"} {
				is := is.New(t)
				pool, err := pgxpool.New(t.Context(), c.url+"&default_query_exec_mode="+mode)
				is.NoErr(err)
				var want error
				if c.lost[mode] {
					want = pooler.ErrStatements
				}
				is.Equal(pooler.CheckStatements(t.Context(), pool), want)
				pool.Close()
			}
		})
	}
}

// Sessions are shared too where others are so busy that each transaction has another one.
func TestSharedSessionsAreNoticedWhileOthersWork(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := pgtest.ThroughPooler(t, pgtest.DirectURL(t), postgres.TransactionMode)
	connect := func(ctx context.Context) (*pgx.Conn, error) {
		return pgx.Connect(ctx, url+"&default_query_exec_mode=exec")
	}
	conn, err := connect(t.Context())
	is.NoErr(err)
	defer conn.Close(context.Background())
	var open []pgx.Tx
	for range 4 {
		shared, err := pooler.Shared(t.Context(), conn, connect)
		is.NoErr(err)
		is.True(shared)
		busy, err := connect(t.Context())
		is.NoErr(err)
		defer busy.Close(context.Background())
		tx, err := busy.Begin(t.Context())
		is.NoErr(err)
		open = append(open, tx)
	}
	for _, tx := range open {
		is.NoErr(tx.Rollback(t.Context()))
	}
}

func TestADatabaseThatCannotBeAskedIsNotRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	is.NoErr(err)
	defer pool.Close()
	is.NoErr(pooler.CheckStatements(t.Context(), pool))
}
