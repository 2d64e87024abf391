package outbox_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/wake"
	"github.com/postlane-go/postlane/outbox"
)

func TestBC02_WakeUpCarriesNoContent(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	listener, err := pgx.ConnectConfig(t.Context(), pgtest.Direct(t, d.Pool))
	d.is.NoErr(err)
	defer listener.Close(context.Background())
	_, err = listener.Exec(t.Context(), "LISTEN "+wake.Channel)
	d.is.NoErr(err)

	var want []string
	for i, size := range []int{7_000, 9_000, 1 << 20} {
		id := fmt.Sprint("m", i)
		want = append(want, id)
		tx, err := d.Begin(t.Context())
		d.is.NoErr(err)
		_, err = outbox.Stage(t.Context(), tx, outbox.Message{
			ID: id, Topic: strings.Repeat("😀", outbox.MaxName/4), Payload: bytes.Repeat([]byte("x"), size),
		})
		d.is.NoErr(err)
		d.is.NoErr(tx.Commit(t.Context()))
		n, err := listener.WaitForNotification(t.Context())
		d.is.NoErr(err)
		d.is.Equal(n.Payload, string(wake.Message))
	}
	got := make(arrivals)
	d.relay(outbox.RelayConfig{Store: d.store(outbox.StoreConfig{}), Publisher: got})
	got.await(t, want...)
}

func TestBC12_LateCommitIsPublished(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	got := make(arrivals, 10)
	begin := func(id string) pgx.Tx {
		tx, err := d.Begin(t.Context())
		d.is.NoErr(err)
		_, err = outbox.Stage(t.Context(), tx, outbox.Message{ID: id, Topic: "t"})
		d.is.NoErr(err)
		return tx
	}
	unrelated, err := d.Begin(t.Context())
	d.is.NoErr(err)
	_, err = unrelated.Exec(t.Context(), "CREATE TABLE unrelated (n int)")
	d.is.NoErr(err)
	defer unrelated.Rollback(context.Background())

	late, undone := begin("e1"), begin("undone")
	d.relay(outbox.RelayConfig{Store: d.store(outbox.StoreConfig{}), Publisher: got, Poll: 10 * time.Millisecond})
	d.stage("", "e2")
	got.await(t, "e2")
	d.is.NoErr(undone.Rollback(t.Context()))
	d.is.NoErr(late.Commit(t.Context()))
	got.await(t, "e1")
	d.stage("", "e3")
	got.await(t, "e3")
}

// Who is told of a row can read it; of what was rolled back nobody is told.
func TestBC13_NothingIsPublishedBeforeItsCommit(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	_, err := d.Exec(t.Context(), "CREATE TABLE business (id text)")
	d.is.NoErr(err)
	got := make(arrivals, 10)
	d.relay(outbox.RelayConfig{
		Store: d.store(outbox.StoreConfig{}), Poll: 10 * time.Millisecond,
		Publisher: outbox.PublisherFunc(func(ctx context.Context, m outbox.Message) error {
			var found bool
			if err := d.QueryRow(ctx, "SELECT EXISTS (SELECT FROM business WHERE id = $1)", m.ID).Scan(&found); err != nil {
				return err
			}
			if !found {
				t.Errorf("%s was published, and its row is not there", m.ID)
			}
			return got.Publish(ctx, m)
		}),
	})
	begin := func(from interface {
		Begin(ctx context.Context) (pgx.Tx, error)
	}, id string,
	) pgx.Tx {
		t.Helper()
		tx, err := from.Begin(t.Context())
		d.is.NoErr(err)
		_, err = outbox.Stage(t.Context(), tx, outbox.Message{ID: id, Topic: "t", Queue: "q"})
		d.is.NoErr(err)
		_, err = tx.Exec(t.Context(), "INSERT INTO business VALUES ($1)", id)
		d.is.NoErr(err)
		return tx
	}
	kept, undone := begin(d, "kept"), begin(d, "undone")
	d.is.NoErr(begin(kept, "inner").Rollback(t.Context())) // a savepoint

	for i := range 3 { // the relay has looked while both were open
		d.is.NoErr(begin(d, fmt.Sprint("other", i)).Commit(t.Context()))
		got.await(t, fmt.Sprint("other", i))
	}
	d.is.NoErr(undone.Rollback(t.Context()))
	d.is.NoErr(kept.Commit(t.Context()))
	d.is.NoErr(begin(d, "last").Commit(t.Context()))
	got.await(t, "kept", "last")
	var left int
	d.is.NoErr(d.QueryRow(t.Context(), "SELECT count(*) FROM postlane.outbox_messages").Scan(&left))
	d.is.Equal(left, 5)
}

func TestBC15_DamagedRowIsParked(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.stage("a", "good1")
	d.stage("b", "bad", "behind")
	d.stage("c", "good2")
	_, err := d.Exec(t.Context(), `UPDATE postlane.outbox_messages SET headers = '["not an object"]' WHERE id = 'bad'`)
	d.is.NoErr(err)
	store, broker := d.store(outbox.StoreConfig{}), &broker{}
	relay, err := outbox.NewRelay(outbox.RelayConfig{Store: store, Publisher: broker, Exhausted: outbox.Park, Logger: slog.New(slog.DiscardHandler)})
	d.is.NoErr(err)
	n, err := relay.Tick(t.Context())
	d.is.NoErr(err)
	d.is.Equal(n, 3)
	d.is.Equal(slices.Sorted(slices.Values(broker.received())), []string{"behind", "good1", "good2"})

	parked, err := store.List(t.Context(), outbox.ListRequest{State: outbox.StateParked})
	d.is.NoErr(err)
	d.is.Equal(len(parked), 1)
	d.is.Equal(parked[0].ID, "bad")
	d.is.True(strings.Contains(parked[0].Error, "damaged"))
	_, err = d.Exec(t.Context(), `UPDATE postlane.outbox_messages SET headers = '{"mended":"yes"}' WHERE id = 'bad'`)
	d.is.NoErr(err)
	_, err = store.Retry(t.Context(), "bad")
	d.is.NoErr(err)
	n, err = relay.Tick(t.Context())
	d.is.NoErr(err)
	d.is.Equal(n, 1)
}

func TestBC17_EventsArriveWithoutPolling(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	got := make(arrivals)
	conn := pgtest.Direct(t, d.Pool)
	conn.RuntimeParams["application_name"] = "listener under test"
	d.relay(outbox.RelayConfig{Store: d.store(outbox.StoreConfig{}), Publisher: got, Poll: time.Hour, Listen: conn})
	for i := range 3 {
		// The first may be found when the relay connects; from then on it takes a
		// notification, and after a kill the look that follows the new LISTEN.
		d.stage("", fmt.Sprint("before", i))
		got.await(t, fmt.Sprint("before", i))
		_, err := d.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'listener under test' AND datname = current_database()")
		d.is.NoErr(err)
		d.stage("", fmt.Sprint("after", i))
		got.await(t, fmt.Sprint("after", i))
	}
}

func TestBC18_SlowBatchIsPublishedOnce(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	const n = 10
	broker := &broker{all: 600 * time.Millisecond} // ten of them are two leases
	store := func() outbox.Store { return d.store(outbox.StoreConfig{Lease: new(3 * time.Second)}) }
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint("m", i))
	}
	d.stage("q", want...)
	done := make(chan struct{})
	var once sync.Once
	publisher := outbox.PublisherFunc(func(ctx context.Context, m outbox.Message) error {
		err := broker.Publish(ctx, m)
		if m.ID == want[n-1] {
			once.Do(func() { close(done) })
		}
		return err
	})
	a := d.relay(outbox.RelayConfig{Store: store(), Publisher: publisher, Batch: 10, Poll: 20 * time.Millisecond})
	b := d.relay(outbox.RelayConfig{Store: store(), Publisher: publisher, Batch: 10, Poll: 20 * time.Millisecond})
	<-done
	a.Stop()
	b.Stop()
	d.is.Equal(broker.received(), want)
	d.is.Equal(broker.faults, nil)
	d.is.Equal(a.Stats().Lost+b.Stats().Lost, int64(0))
}

func TestTwoRelaysPublishEachMessageOnce(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	const queues, depth = 20, 30
	want := map[string]int{}
	for q := range queues {
		var ids []string
		for i := range depth {
			ids = append(ids, fmt.Sprintf("q%d-%d", q, i))
			want[ids[i]] = 1
		}
		d.stage(fmt.Sprint("q", q), ids...)
	}
	got := make(arrivals)
	for range 2 {
		d.relay(outbox.RelayConfig{Store: d.store(outbox.StoreConfig{}), Publisher: got, Batch: 17, Poll: 10 * time.Millisecond})
	}
	seen := map[string]int{}
	next := map[string]int{}
	for range queues * depth {
		m := <-got
		seen[m.ID]++
		d.is.Equal(m.ID, fmt.Sprintf("%s-%d", m.Queue, next[m.Queue]))
		next[m.Queue]++
	}
	d.is.Equal(seen, want)
}

// A relay that was killed in the middle of a batch is taken over when its lease
// ends; one that was only stopped, and wakes late, changes nothing.
func TestKilledRelayIsTakenOver(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.stage("q", "m0", "m1", "m2")
	killed := d.store(outbox.StoreConfig{Claimant: "killed", Lease: new(500 * time.Millisecond)})
	stale, err := killed.Claim(t.Context(), 10)
	d.is.NoErr(err)
	d.is.NoErr(killed.MarkPublished(t.Context(), stale[0]))

	got := make(arrivals)
	relay := d.relay(outbox.RelayConfig{Store: d.store(outbox.StoreConfig{}), Publisher: got, Poll: 20 * time.Millisecond})
	got.await(t, "m1", "m2")
	d.is.True(killed.Renew(t.Context(), stale[2]) != nil)
	d.is.True(killed.MarkPublished(t.Context(), stale[1:]...) != nil)
	d.is.True(killed.Release(t.Context(), stale[1:]...) != nil)
	relay.Stop()

	published, err := d.store(outbox.StoreConfig{}).List(t.Context(), outbox.ListRequest{State: outbox.StatePublished})
	d.is.NoErr(err)
	d.is.Equal(len(published), 3)
	d.is.Equal(published[0].Claimant, "killed")
	d.is.True(strings.HasPrefix(published[1].Claimant, "relay-"))
	d.is.Equal(published[1].Attempts, 2) // it may have been sent
	d.is.Equal(published[2].Attempts, 1)
}
