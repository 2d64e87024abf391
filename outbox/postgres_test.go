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
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/wake"
	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/outboxtest"
)

// database is a bundle around a real database.
type database struct {
	*pgxpool.Pool
	is *is.I
	t  *testing.T
}

func newDatabase(t *testing.T) *database { return &database{pgtest.New(t), is.New(t), t} }

func (d *database) store(config outbox.StoreConfig) *outbox.Postgres {
	d.t.Helper()
	store, err := outbox.NewPostgres(d.Pool, config)
	d.is.NoErr(err)
	return store
}

func (d *database) stage(queue string, ids ...string) {
	d.t.Helper()
	stageIDs(d.t, d.store(outbox.StoreConfig{}), d.Begin, queue, ids...)
}

// relay runs a relay until the end of the test.
func (d *database) relay(config outbox.RelayConfig) *outbox.Relay {
	d.t.Helper()
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	relay, err := outbox.NewRelay(config)
	d.is.NoErr(err)
	done := make(chan error, 1)
	go func() { done <- relay.Run(context.Background()) }()
	d.t.Cleanup(func() { relay.Stop(); d.is.NoErr(<-done) })
	return relay
}

// arrivals is a Publisher that passes on what it gets.
type arrivals chan outbox.Message

func (a arrivals) Publish(ctx context.Context, m outbox.Message) error {
	select {
	case a <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a arrivals) await(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		select {
		case m := <-a:
			if m.ID != id {
				t.Fatalf("%s arrived, not %s", m.ID, id)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s did not arrive in 20 s", id)
		}
	}
}

func TestBC02WakeUpCarriesNoContent(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	listener, err := d.Acquire(t.Context())
	d.is.NoErr(err)
	defer listener.Release()
	_, err = listener.Exec(t.Context(), "LISTEN "+wake.Channel)
	d.is.NoErr(err)
	defer listener.Exec(context.Background(), "UNLISTEN *")

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
		n, err := listener.Conn().WaitForNotification(t.Context())
		d.is.NoErr(err)
		d.is.Equal(n.Payload, string(wake.Message))
	}
	got := make(arrivals)
	d.relay(outbox.RelayConfig{Store: d.store(outbox.StoreConfig{}), Publisher: got})
	got.await(t, want...)
}

func TestBC05EveryQueryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			outboxtest.Run(t, func(t *testing.T) outboxtest.Bed {
				config, err := pgxpool.ParseConfig(pgtest.URL(t))
				is.New(t).NoErr(err)
				config.ConnConfig.DefaultQueryExecMode = mode
				config.MaxConns = 8
				pool, err := pgxpool.NewWithConfig(context.Background(), config)
				is.New(t).NoErr(err)
				t.Cleanup(pool.Close)
				return postgresBed(t, pool)
			})
		})
	}
}

func TestBC12LateCommitIsPublished(t *testing.T) {
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

func TestBC15DamagedRowIsParked(t *testing.T) {
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

func TestBC17EventsArriveWithoutPolling(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	got := make(arrivals)
	conn := d.Config().ConnConfig.Copy()
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

func TestBC18SlowBatchIsPublishedOnce(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	const n = 10
	broker := &broker{all: 120 * time.Millisecond} // ten of them are two leases
	store := func() outbox.Store { return d.store(outbox.StoreConfig{Lease: new(600 * time.Millisecond)}) }
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

	began := time.Now()
	got := make(arrivals)
	relay := d.relay(outbox.RelayConfig{Store: d.store(outbox.StoreConfig{}), Publisher: got, Poll: 20 * time.Millisecond})
	got.await(t, "m1", "m2")
	d.is.True(time.Since(began) < 10*time.Second)
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

func TestBC60OperatorsNeedNoRelay(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	store := d.store(outbox.StoreConfig{})
	d.stage("q", "parked", "published", "waits", "behind")
	claims, err := store.Claim(t.Context(), 3)
	d.is.NoErr(err)
	d.is.NoErr(store.Fail(t.Context(), outbox.Failure{Claim: claims[0], Error: "never", Park: true}))
	d.is.NoErr(store.MarkPublished(t.Context(), claims[1]))
	d.is.NoErr(store.Fail(t.Context(), outbox.Failure{Claim: claims[2], Error: "later", Delay: time.Hour}))

	pending, err := store.List(t.Context(), outbox.ListRequest{State: outbox.StatePending})
	d.is.NoErr(err)
	d.is.Equal(len(pending), 2)
	d.is.Equal([]string{pending[0].ID, pending[0].Error}, []string{"waits", "later"})
	d.is.True(time.Until(pending[0].At) > 50*time.Minute)
	d.is.True(pending[1].At.IsZero())
	_, err = store.List(t.Context(), outbox.ListRequest{State: "unheard of"})
	d.is.True(err != nil)

	for _, want := range [][]string{{"parked"}, nil} { // safe to repeat
		retried, err := store.RetryParked(t.Context(), "", 10)
		d.is.NoErr(err)
		d.is.Equal(retried, want)
	}
	for _, want := range []int{1, 0} {
		pruned, err := store.Prune(t.Context(), 0, 10)
		d.is.NoErr(err)
		d.is.Equal(pruned, want)
	}
	retried, err := store.Retry(t.Context(), "waits")
	d.is.NoErr(err)
	d.is.Equal(retried, []string{"waits"})
	fresh := d.store(outbox.StoreConfig{}) // as if in another process
	claims, err = fresh.Claim(t.Context(), 10)
	d.is.NoErr(err)
	d.is.Equal([]string{claims[0].ID, claims[1].ID, claims[2].ID}, []string{"parked", "waits", "behind"})
}

func TestPostgresRefusesImpossibleLeases(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	for _, lease := range []time.Duration{0, -time.Second, time.Microsecond, 1<<63 - 1} {
		_, err := outbox.NewPostgres(d.Pool, outbox.StoreConfig{Lease: &lease})
		d.is.True(err != nil)
		_, memory := outbox.NewMemory(outbox.StoreConfig{Lease: &lease})
		d.is.Equal(err.Error(), memory.Error()) // one rule, one reason
	}
}

func TestBC09LockedHeadHoldsItsQueue(t *testing.T) {
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
