// Package lockwait limits how long a statement in a caller's transaction waits for
// other transactions.
package lockwait

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postlane-go/postlane/internal/dbgen"
)

// ErrBusy means that another open transaction holds what the statement writes.
var ErrBusy = errors.New("another open transaction holds what this one writes")

const savepoint = "postlane_lockwait"

// Query runs a statement in tx, in one round trip, and gives its rows to read. A
// statement that is contested, since it writes what another transaction may hold,
// waits for that half a second at most. Running into the limit is an error that
// would end the transaction, hence a savepoint around: after ErrBusy the transaction
// is as it was before.
func Query(ctx context.Context, tx pgx.Tx, contested bool, sql string, args []any, read func(pgx.Rows) error) error {
	if !contested {
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		return read(rows)
	}
	batch := &pgx.Batch{}
	batch.Queue("savepoint " + savepoint)
	batch.Queue(dbgen.LockTimeout)
	batch.Queue(sql, args...).Query(read)
	batch.Queue(dbgen.LockTimeoutRestore)
	batch.Queue("release savepoint " + savepoint)
	err := tx.SendBatch(ctx, batch).Close()
	if !lockTimeout(err) {
		return err
	}
	for _, sql := range []string{"rollback to savepoint " + savepoint, "release savepoint " + savepoint} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return ErrBusy
}

// lockTimeout reports PostgreSQL's lock_not_available (55P03).
func lockTimeout(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55P03"
}
