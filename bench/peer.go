package main

import (
	"context"
	"runtime/debug"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// handler gets the body of each message that a peer works. It may be called from many
// goroutines. A nil body is that of a message whose work was done elsewhere.
type handler func(ctx context.Context, body []byte) error

// peer is a library that is measured.
type peer interface {
	// version is that of the library.
	version() string
	// setup makes the peer's schema in an empty database.
	setup(ctx context.Context, pool *pgxpool.Pool) error
	// stage puts one message into the caller's transaction.
	stage(ctx context.Context, tx pgx.Tx, body []byte) error
	// bulk inserts messages by the fastest public way, in a transaction of its own.
	bulk(ctx context.Context, pool *pgxpool.Pool, bodies [][]byte) error
	// work starts workers. stop returns once they have ended, and what they finished
	// is recorded.
	work(ctx context.Context, pool *pgxpool.Pool, h handler) (stop func() error, err error)
	// remaining counts the messages that are not done.
	remaining(ctx context.Context, pool *pgxpool.Pool) (int64, error)
	// conns is the size of the pool that work needs.
	conns() int
}

var peers = map[string]func(*measurement) (peer, error){
	"postlane outbox":   newOutbox,
	"postlane delivery": newDelivery,
	"river":             newRiver,
	"gue":               newGue,
	"watermill-sql":     newWatermill,
	"graphile-worker":   newGraphile,
	"INSERT":            newPlain,
}

// moduleVersion is the version of a module that is compiled in.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, d := range info.Deps {
		if d.Path == path {
			return d.Version
		}
	}
	return "unknown"
}

func count(ctx context.Context, pool *pgxpool.Pool, query string) (n int64, err error) {
	err = pool.QueryRow(ctx, query).Scan(&n)
	return n, err
}
