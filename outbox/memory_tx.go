package outbox

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrMemoryTx means that a transaction of a Memory was asked for SQL.
var ErrMemoryTx = errors.New("outbox: a transaction of Memory stages messages and runs no SQL")

// Begin opens a transaction for Stage. What it stages is there once it is
// committed; its own Begin is a savepoint. Anything but Begin, Commit and
// Rollback fails with ErrMemoryTx.
func (s *Memory) Begin(context.Context) (pgx.Tx, error) { return &memoryTx{store: s}, nil }

type memoryTx struct {
	store    *Memory
	parent   *memoryTx // of a savepoint
	messages []*memoryMessage
	ended    bool
}

var _ pgx.Tx = (*memoryTx)(nil)

// knows reports whether the transaction has staged this id or idempotency key.
func (t *memoryTx) knows(m Message) bool {
	for ; t != nil; t = t.parent {
		if slices.ContainsFunc(t.messages, func(o *memoryMessage) bool {
			return o.ID == m.ID || m.IdempotencyKey != "" && o.Tenant == m.Tenant && o.IdempotencyKey == m.IdempotencyKey
		}) {
			return true
		}
	}
	return false
}

func (t *memoryTx) Begin(context.Context) (pgx.Tx, error) {
	if t.ended {
		return nil, pgx.ErrTxClosed
	}
	return &memoryTx{store: t.store, parent: t}, nil
}

func (t *memoryTx) Commit(context.Context) error {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if t.ended {
		return pgx.ErrTxClosed
	}
	t.ended = true
	if t.parent != nil {
		t.parent.messages = append(t.parent.messages, t.messages...)
		return nil
	}
	for _, m := range t.messages {
		t.store.add(m)
	}
	return nil
}

func (t *memoryTx) Rollback(context.Context) error {
	if t.ended {
		return pgx.ErrTxClosed
	}
	t.ended, t.messages = true, nil
	return nil
}

func (t *memoryTx) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, ErrMemoryTx
}

func (t *memoryTx) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, ErrMemoryTx
}

func (t *memoryTx) QueryRow(context.Context, string, ...any) pgx.Row { return memoryRow{} }

func (t *memoryTx) CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error) {
	return 0, ErrMemoryTx
}

func (t *memoryTx) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return memoryRow{} }

func (t *memoryTx) LargeObjects() pgx.LargeObjects { return pgx.LargeObjects{} }

func (t *memoryTx) Prepare(context.Context, string, string) (*pgconn.StatementDescription, error) {
	return nil, ErrMemoryTx
}

func (t *memoryTx) Conn() *pgx.Conn { return nil }

// memoryRow answers every question with ErrMemoryTx.
type memoryRow struct{}

func (memoryRow) Scan(...any) error                { return ErrMemoryTx }
func (memoryRow) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, ErrMemoryTx }
func (memoryRow) Query() (pgx.Rows, error)         { return nil, ErrMemoryTx }
func (memoryRow) QueryRow() pgx.Row                { return memoryRow{} }
func (memoryRow) Close() error                     { return ErrMemoryTx }
func (memoryRow) Tx() pgx.Tx                       { return nil }
