package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// plainPeer is no library: an INSERT of the same bytes, as the caller's own would be.
type plainPeer struct{}

func newPlain(*measurement) (peer, error) { return plainPeer{}, nil }

func (plainPeer) version() string { return "pgx " + moduleVersion("github.com/jackc/pgx/v5") }
func (plainPeer) conns() int      { return 1 }

func (plainPeer) setup(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, "CREATE TABLE plain (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL)")
	return err
}

func (plainPeer) stage(ctx context.Context, tx pgx.Tx, body []byte) error {
	_, err := tx.Exec(ctx, "INSERT INTO plain (body) VALUES ($1)", body)
	return err
}

var errPlain = errors.New("a plain INSERT can only be staged")

func (plainPeer) bulk(context.Context, *pgxpool.Pool, [][]byte) error { return errPlain }

func (plainPeer) work(context.Context, *pgxpool.Pool, handler) (func() error, error) {
	return nil, errPlain
}

func (plainPeer) remaining(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	return count(ctx, pool, "SELECT count(*) FROM plain")
}
