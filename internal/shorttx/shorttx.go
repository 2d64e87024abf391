// Package shorttx runs transactions of several round trips, which hold locks between
// them.
package shorttx

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// begin asks the server to end the session if it hears nothing for 10 s in the middle
// of the transaction. A process that is frozen, or cut off without a word, would hold
// its locks for as long as the server believes in the connection, hours by default, and
// everybody steps over what is locked: nobody could reclaim its deliveries.
const begin = "begin isolation level read committed; set local idle_in_transaction_session_timeout = '10s'"

// Run runs f in a read committed transaction, and commits if it succeeds. Between its
// statements f does nothing that takes long.
func Run(ctx context.Context, db interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}, f func(pgx.Tx) error,
) error {
	return pgx.BeginTxFunc(ctx, db, pgx.TxOptions{BeginQuery: begin}, f)
}
