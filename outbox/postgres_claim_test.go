package outbox_test

import (
	"testing"

	"github.com/postlane-go/postlane/outbox"
)

func TestBC09_LockedHeadHoldsItsQueue(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.stage("k", "d1", "d2")
	d.stage("l", "d3")
	locker, err := d.Begin(t.Context())
	d.is.NoErr(err)
	_, err = locker.Exec(t.Context(), "SELECT FROM postlane.outbox_pending WHERE id = 'd1' FOR UPDATE")
	d.is.NoErr(err)
	store := d.store(outbox.StoreConfig{})
	claims, err := store.Claim(t.Context(), 10)
	d.is.NoErr(err)
	d.is.Equal(len(claims), 1)
	d.is.Equal(claims[0].ID, "d3")
	for range 3 { // from wherever it begins, it comes to an end
		claims, err = store.Claim(t.Context(), 1)
		d.is.NoErr(err)
		d.is.Equal(len(claims), 0)
	}
	d.is.NoErr(locker.Rollback(t.Context()))
	claims, err = store.Claim(t.Context(), 10)
	d.is.NoErr(err)
	d.is.Equal([]string{claims[0].ID, claims[1].ID}, []string{"d1", "d2"})
}

// Claims that meet many queues which wait do not step over them for ever.
func TestWaitingQueuesLeaveTheClaimsWay(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	_, err := d.Exec(t.Context(), `
		WITH staged AS (
			INSERT INTO postlane.outbox_messages (seq, max_attempts, id, queue, topic, payload)
			SELECT nextval('postlane.outbox_seq'), 20, 'm' || g, 'q' || g % 5000, 't', '' FROM generate_series(1, 20000) g
			RETURNING seq, id, queue),
		held AS (
			INSERT INTO postlane.outbox_holds (queue, seq, since, until)
			SELECT queue, min(seq), now(), now() + interval '1 hour' FROM staged GROUP BY queue)
		INSERT INTO postlane.outbox_pending (seq, since, size, queue, id) SELECT seq, now(), 0, queue, id FROM staged`)
	d.is.NoErr(err)
	d.stage("healthy", "h")
	store := d.store(outbox.StoreConfig{})
	var claims []outbox.Claim
	for range 20 { // each stays short, and hides what it met
		claims, err = store.Claim(t.Context(), 10)
		d.is.NoErr(err)
		if len(claims) > 0 {
			d.is.NoErr(store.Release(t.Context(), claims...))
		}
	}
	d.is.Equal(claims[0].ID, "h")
	var visible int
	d.is.NoErr(d.QueryRow(t.Context(), "SELECT count(*) FROM postlane.outbox_pending WHERE ready").Scan(&visible))
	d.is.Equal(visible, 1)

	_, err = d.Exec(t.Context(), "UPDATE postlane.outbox_holds SET until = now()")
	d.is.NoErr(err)
	total := 0
	for {
		claims, err = d.store(outbox.StoreConfig{}).Claim(t.Context(), 1000)
		d.is.NoErr(err)
		if len(claims) == 0 {
			break
		}
		total += len(claims)
		d.is.NoErr(store.MarkPublished(t.Context(), claims...))
	}
	d.is.Equal(total, 20_001)
}
