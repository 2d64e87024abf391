package delivery

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// ErrTooBroad means that a read had to look at too much to be answered in time; narrow
// what is asked for.
var ErrTooBroad = errors.New("delivery: too broad to be answered in time; narrow it by asset or time")

// readTimeout bounds the reads that a person's filter can make expensive.
const readTimeoutMS = 5000

// bounded runs statements that a filter can make expensive, as one transaction in one
// round trip. The database ends them after readTimeoutMS, which a deadline of this side
// would not: it only stops waiting.
func (s *Store) bounded(ctx context.Context, queue func(*pgx.Batch)) error {
	batch := &pgx.Batch{}
	batch.Queue("begin isolation level read committed")
	batch.Queue(dbgen.LogSettings, int32(readTimeoutMS))
	queue(batch)
	batch.Queue("commit")
	return tooBroad(ctx, s.pool.SendBatch(ctx, batch).Close())
}

// boundedWrite is bounded for statements that write. The commit is a round trip of its
// own: a caller who goes away before the answer has changed nothing.
func (s *Store) boundedWrite(ctx context.Context, queue func(*pgx.Batch)) error {
	return tooBroad(ctx, s.transaction(ctx, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(dbgen.LogSettings, int32(readTimeoutMS))
		queue(batch)
		return tx.SendBatch(ctx, batch).Close()
	}))
}

// tooBroad is ErrTooBroad where the database ended a statement.
func tooBroad(ctx context.Context, err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "57014" && ctx.Err() == nil { // query_canceled
		return ErrTooBroad
	}
	return err
}
