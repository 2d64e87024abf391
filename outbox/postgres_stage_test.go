package outbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/outbox"
)

func (d *database) begin() pgx.Tx {
	d.t.Helper()
	tx, err := d.Begin(d.t.Context())
	d.is.NoErr(err)
	d.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// An id or idempotency key that another open transaction has taken is waited for,
// but not for long, and running out of patience leaves the transaction as it was.
func TestStageWhatAnotherOpenTransactionHolds(t *testing.T) {
	t.Parallel()
	taken := outbox.Message{ID: "taken", Topic: "t", Tenant: "acme", IdempotencyKey: "k"}
	for name, m := range map[string]outbox.Message{
		"id":  {ID: "taken", Topic: "t"},
		"key": {Topic: "t", Tenant: "acme", IdempotencyKey: "k"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t)
			holder, tx := d.begin(), d.begin()
			_, err := outbox.Stage(t.Context(), holder, taken)
			d.is.NoErr(err)

			_, err = tx.Exec(t.Context(), "SET LOCAL lock_timeout = '20s'; CREATE TABLE business (n int)")
			d.is.NoErr(err)
			_, err = outbox.Stage(t.Context(), tx, outbox.Message{ID: "with", Topic: "t"}, m)
			d.is.True(errors.Is(err, outbox.ErrBusy))
			staged, err := outbox.Stage(t.Context(), tx, outbox.Message{ID: "free", Topic: "t"})
			d.is.NoErr(err)
			d.is.True(!staged[0].Duplicate)
			var timeout string
			d.is.NoErr(tx.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&timeout))
			d.is.Equal(timeout, "20s") // as the caller had it
			d.is.NoErr(tx.Commit(t.Context()))
			d.is.NoErr(holder.Rollback(t.Context()))

			list, err := d.store(outbox.StoreConfig{}).List(t.Context(), outbox.ListRequest{State: outbox.StatePending})
			d.is.NoErr(err)
			d.is.Equal(len(list), 1) // nothing of the call that was busy
			d.is.Equal(list[0].ID, "free")
			_, err = d.Exec(t.Context(), "INSERT INTO business VALUES (1)")
			d.is.NoErr(err)
		})
	}
}

// A holder that ends in time is waited for.
func TestStageWhatIsDecidedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, committed := range []bool{true, false} {
		d := newDatabase(t)
		m := outbox.Message{ID: "m", Topic: "t"}
		holder, tx := d.begin(), d.begin()
		_, err := outbox.Stage(t.Context(), holder, m)
		d.is.NoErr(err)
		type answer struct {
			staged []outbox.Staged
			err    error
		}
		answered := make(chan answer, 1)
		go func() {
			staged, err := outbox.Stage(t.Context(), tx, m)
			answered <- answer{staged, err}
		}()
		pgtest.WaitForBlocked(t, d.Pool, 1)
		if committed {
			d.is.NoErr(holder.Commit(t.Context()))
		} else {
			d.is.NoErr(holder.Rollback(t.Context()))
		}
		a := <-answered
		d.is.NoErr(a.err)
		d.is.Equal(a.staged[0].Duplicate, committed)
		d.is.NoErr(tx.Commit(t.Context()))
	}
}

// Messages without an id or idempotency key of their own meet nobody's.
func TestStageWithoutIDsSetsNothing(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	tx := d.begin()
	_, err := outbox.Stage(t.Context(), tx, outbox.Message{Topic: "t"}, outbox.Message{Topic: "t"})
	d.is.NoErr(err)
	var remembered string
	d.is.NoErr(tx.QueryRow(t.Context(), "SELECT coalesce(current_setting('postlane.lock_timeout', true), '')").Scan(&remembered))
	d.is.Equal(remembered, "")
}
