package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
)

func (b *bundle) begin(options ...pgx.TxOptions) pgx.Tx {
	b.t.Helper()
	o := pgx.TxOptions{}
	if len(options) > 0 {
		o = options[0]
	}
	tx, err := b.pool.BeginTx(b.ctx, o)
	b.is.NoErr(err)
	b.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func named(id, asset string) delivery.Event {
	e := event(asset)
	e.ID = id
	return e
}

func TestWhatCannotBeStoredIsRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	for field, edits := range map[string][]func(*delivery.Event){
		"ID": {
			func(e *delivery.Event) { e.ID = "a b" }, func(e *delivery.Event) { e.ID = "a\x00" }, func(e *delivery.Event) { e.ID = "é" },
			func(e *delivery.Event) { e.ID = strings.Repeat("a", delivery.MaxID+1) },
		},
		"Tenant": {
			func(e *delivery.Event) { e.Tenant = "" }, func(e *delivery.Event) { e.Tenant = "a\x00" }, func(e *delivery.Event) { e.Tenant = "\xff" },
			func(e *delivery.Event) { e.Tenant = strings.Repeat("a", delivery.MaxTenant+1) },
		},
		"Asset": {
			func(e *delivery.Event) { e.Asset = "a\x00" }, func(e *delivery.Event) { e.Asset = "\xed\xa0\x80" },
			func(e *delivery.Event) { e.Asset = strings.Repeat("😀", 2000) },
		},
		"Type": {
			func(e *delivery.Event) { e.Type = "" }, func(e *delivery.Event) { e.Type = "*" }, func(e *delivery.Event) { e.Type = "a..b" },
			func(e *delivery.Event) { e.Type = "a.*" }, func(e *delivery.Event) { e.Type = strings.Repeat("a.", 16) + "a" },
			func(e *delivery.Event) { e.Type = strings.Repeat("😀", 2000) },
		},
		"ContentType": {func(e *delivery.Event) { e.ContentType = "text/plain\r\nX-Evil: 1" }},
		"Payload":     {func(e *delivery.Event) { e.Payload = make([]byte, delivery.MaxPayload+1) }},
	} {
		for i, edit := range edits {
			e := event("a")
			edit(&e)
			// A transaction that is not there: nothing may touch it.
			_, err := delivery.Enqueue(b.ctx, nil, event("ok"), e)
			var invalid *delivery.InvalidError
			if !errors.As(err, &invalid) || !errors.Is(err, delivery.ErrInvalid) || invalid.Field != field || invalid.Index != 1 {
				t.Errorf("%s %d: %v", field, i, err)
			}
		}
	}
	enqueued, err := delivery.Enqueue(b.ctx, nil)
	b.is.NoErr(err)
	b.is.Equal(len(enqueued), 0)
}

func TestBC01_AnyPayloadIsStoredAsItIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	b.exec("CREATE TABLE public.business (n int)")
	payloads := [][]byte{
		[]byte(`{"note":"a\u0000b"}`), []byte(`{"note":"\ud800"}`), []byte("a\x00b"), []byte("caf\xe9"), {}, nil,
		[]byte(`{ "b":1,  "a":[1,[2]], "é":"日本" }`), []byte("not json at all"), []byte(strings.Repeat("x", 65537)),
	}
	for i, p := range payloads {
		b.is.NoErr(pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(b.ctx, "INSERT INTO public.business VALUES ($1)", i); err != nil {
				return err
			}
			_, err := delivery.Enqueue(b.ctx, tx, delivery.Event{Tenant: tenant, Type: "note.written", Payload: p})
			return err
		}))
		claims := b.claim(1)
		b.is.Equal(claims[0].PayloadSize, len(p))
		got := claims[0].Payload
		if got == nil {
			var err error
			got, err = b.store.Payload(b.ctx, &claims[0])
			b.is.NoErr(err)
		}
		b.is.Equal(string(got), string(p))
		b.is.Equal(claims[0].ContentType, "application/json")
		b.settle(delivery.Succeeded, claims...)
	}
	b.is.Equal(one[int](b, "SELECT count(*) FROM public.business"), len(payloads))
}

func TestBC02_TheWakeUpCarriesNoContent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	listener, err := pgx.ConnectConfig(b.ctx, pgtest.Direct(t, b.pool))
	b.is.NoErr(err)
	defer listener.Close(context.Background())
	_, err = listener.Exec(b.ctx, "LISTEN postlane")
	b.is.NoErr(err)
	longest := strings.Repeat("😀", delivery.MaxAsset/4)
	for _, size := range []int{7_000, 9_000, 1 << 20} {
		e := event(longest)
		e.Payload = []byte(strings.Repeat("x", size))
		b.enqueueEvents(e)
		ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
		n, err := listener.WaitForNotification(ctx)
		cancel()
		b.is.NoErr(err)
		b.is.Equal(n.Payload, "delivery")
		b.settle(delivery.Succeeded, b.claim(1)...)
	}
	e := event("a")
	e.Asset = strings.Repeat("😀", 2000)
	_, err = delivery.Enqueue(b.ctx, nil, e)
	b.is.True(errors.Is(err, delivery.ErrInvalid))
}

func TestTheSameIdIsTheSameEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	first := b.enqueueEvents(named("evt_1", "a"))
	b.is.True(!first[0].Duplicate)
	again := b.enqueueEvents(named("evt_2", "a"), named("evt_1", "a"), event("b"), named("evt_2", "a"))
	b.is.Equal(again[1], delivery.Enqueued{ID: "evt_1", Seq: first[0].Seq, Duplicate: true})
	b.is.True(!again[0].Duplicate)
	b.is.Equal(again[3], delivery.Enqueued{ID: "evt_2", Seq: again[0].Seq, Duplicate: true}) // twice in the call: new once
	b.is.True(strings.HasPrefix(again[2].ID, "evt_"))
	b.is.Equal(len(b.list(sub, delivery.Filter{})), 3)
	// Another tenant's ids are its own.
	other := named("evt_1", "z")
	other.Tenant = "another"
	b.is.True(!b.enqueueEvents(other)[0].Duplicate)
	// Settled and delivered, it is still that event.
	b.settle(delivery.Succeeded, b.claim(10)...)
	b.is.True(b.enqueueEvents(named("evt_1", "a"))[0].Duplicate)
}

func TestBC45_AnotherEventUnderATakenId(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	b.exec("CREATE TABLE public.business (n int)")
	b.enqueueEvents(named("evt_1", "a"))
	before := b.state()
	for differs, edit := range map[string]func(*delivery.Event){
		"payload":      func(e *delivery.Event) { e.Payload = []byte("{}") },
		"asset":        func(e *delivery.Event) { e.Asset = "" },
		"type":         func(e *delivery.Event) { e.Type = "thing.deleted" },
		"content type": func(e *delivery.Event) { e.ContentType = "text/plain" },
	} {
		for _, position := range []int{0, 1} {
			e := named("evt_1", "a")
			edit(&e)
			events := slices.Insert([]delivery.Event{named("evt_new", "x"), event("y")}, position, e)
			tx := b.begin()
			_, err := tx.Exec(b.ctx, "INSERT INTO public.business VALUES (1)")
			b.is.NoErr(err)
			_, err = delivery.Enqueue(b.ctx, tx, events...)
			var conflict *delivery.ConflictError
			b.is.True(errors.As(err, &conflict))
			b.is.True(errors.Is(err, delivery.ErrConflict))
			b.is.Equal(conflict.Differs, []string{differs})
			b.is.Equal(conflict.ID, "evt_1")
			b.is.NoErr(tx.Commit(b.ctx)) // the transaction lives
			b.unchanged(before)          // and nothing of the call is stored
		}
	}
	b.is.Equal(one[int](b, "SELECT count(*) FROM public.business"), 8)

	// Within one call it is found before anything is sent.
	e := named("evt_9", "b")
	_, err := delivery.Enqueue(b.ctx, nil, named("evt_9", "a"), e)
	b.is.True(errors.Is(err, delivery.ErrConflict))
}

func TestBC45_ManyEnqueueTheSameId(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	b.exec("CREATE TABLE public.business (n int)")
	var mu sync.Mutex
	fresh := 0
	b.is.NoErr(together(20, func(i int) error {
		return pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(b.ctx, "INSERT INTO public.business VALUES ($1)", i); err != nil {
				return err
			}
			enqueued, err := delivery.Enqueue(b.ctx, tx, named("evt_1", "a"))
			if errors.Is(err, delivery.ErrBusy) {
				return nil // as documented: the transaction is unharmed
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if !enqueued[0].Duplicate {
				fresh++
			}
			return nil
		})
	}))
	b.is.Equal(fresh, 1)
	b.is.Equal(one[int](b, "SELECT count(*) FROM public.business"), 20)
	b.is.Equal(b.counts(sub), "pending:1 ")
}

func TestAnIdThatAnotherOpenTransactionHolds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	b.exec("CREATE TABLE public.business (n int)")
	holder := b.begin()
	_, err := delivery.Enqueue(b.ctx, holder, named("evt_1", "a"))
	b.is.NoErr(err)

	tx := b.begin()
	_, err = tx.Exec(b.ctx, "SET LOCAL lock_timeout = '20s'; INSERT INTO public.business VALUES (1)")
	b.is.NoErr(err)
	_, err = delivery.Enqueue(b.ctx, tx, named("evt_0", "z"), named("evt_1", "a"))
	b.is.True(errors.Is(err, delivery.ErrBusy))
	var timeout string
	b.is.NoErr(tx.QueryRow(b.ctx, "SHOW lock_timeout").Scan(&timeout))
	b.is.Equal(timeout, "20s") // as the caller had it
	_, err = delivery.Enqueue(b.ctx, tx, named("evt_2", "b"))
	b.is.NoErr(err)
	b.is.NoErr(tx.QueryRow(b.ctx, "SHOW lock_timeout").Scan(&timeout))
	b.is.Equal(timeout, "20s")
	b.is.NoErr(tx.Commit(b.ctx))
	b.is.NoErr(holder.Rollback(b.ctx))
	b.is.Equal(one[int](b, "SELECT count(*) FROM public.business"), 1)
	b.is.Equal(b.counts(sub), "pending:1 ") // evt_2 alone: nothing of the busy call
	b.is.True(!b.enqueueEvents(named("evt_1", "a"))[0].Duplicate)
}

// A holder that ends in time is waited for.
func TestAnIdWhoseHolderCommitsMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	for _, commit := range []bool{true, false} {
		id := fmt.Sprint("evt_", commit)
		holder, tx := b.begin(), b.begin()
		_, err := delivery.Enqueue(b.ctx, holder, named(id, "a"))
		b.is.NoErr(err)
		type answer struct {
			enqueued []delivery.Enqueued
			err      error
		}
		answered := make(chan answer, 1)
		go func() {
			e, err := delivery.Enqueue(b.ctx, tx, named(id, "a"))
			answered <- answer{e, err}
		}()
		pgtest.WaitForBlocked(t, b.pool, 1)
		if commit {
			b.is.NoErr(holder.Commit(b.ctx))
		} else {
			b.is.NoErr(holder.Rollback(b.ctx))
		}
		a := <-answered
		b.is.NoErr(a.err)
		b.is.Equal(a.enqueued[0].Duplicate, commit)
		b.is.NoErr(tx.Commit(b.ctx))
	}
}

func TestTwoTransactionsWithTheSameIdsCrosswise(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	one, two := b.begin(), b.begin()
	_, err := delivery.Enqueue(b.ctx, one, named("evt_1", "a"))
	b.is.NoErr(err)
	_, err = delivery.Enqueue(b.ctx, two, named("evt_2", "a"))
	b.is.NoErr(err)
	txs := []pgx.Tx{one, two}
	busy := make([]bool, 2)
	b.is.NoErr(together(2, func(i int) error {
		_, err := delivery.Enqueue(b.ctx, txs[i], named([]string{"evt_2", "evt_1"}[i], "a"))
		if busy[i] = errors.Is(err, delivery.ErrBusy); busy[i] {
			return nil
		}
		return err
	}))
	b.is.True(busy[0] || busy[1]) // and neither was ended by a deadlock:
	b.is.NoErr(one.Commit(b.ctx))
	b.is.NoErr(two.Commit(b.ctx))

	// In one call each, in opposite orders.
	for round := range 10 {
		ids := []string{fmt.Sprint("x", round), fmt.Sprint("y", round)}
		b.is.NoErr(together(2, func(i int) error {
			return pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) error {
				_, err := delivery.Enqueue(b.ctx, tx, named(ids[i], "a"), named(ids[1-i], "a"))
				if errors.Is(err, delivery.ErrBusy) {
					return nil
				}
				return err
			})
		}))
	}
}

// trips counts how often a connection waits for the server: reads that follow a write.
type trips struct {
	net.Conn
	mu    sync.Mutex
	wrote bool
	n     int
}

func (c *trips) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.wrote = true
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// Read counts when it returns: it may have been waiting since before the write.
func (c *trips) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrote && n > 0 {
		c.wrote = false
		c.n++
	}
	return n, err
}

func (c *trips) count(f func()) int {
	c.mu.Lock()
	before := c.n
	c.mu.Unlock()
	f()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n - before
}

func TestAnEnqueueIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	config, err := pgx.ParseConfig(pgtest.URL(t))
	is.NoErr(err)
	var line *trips
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		line = &trips{Conn: c}
		return line, err
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	is.NoErr(err)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	is.NoErr(err)
	enqueue := func(events ...delivery.Event) func() {
		return func() {
			_, err := delivery.Enqueue(t.Context(), tx, events...)
			is.NoErr(err)
		}
	}
	many := make([]delivery.Event, 200)
	manyNamed := make([]delivery.Event, 200)
	for i := range many {
		many[i] = event(fmt.Sprint(i))
		manyNamed[i] = named(fmt.Sprint("evt_", i), fmt.Sprint(i))
	}
	enqueue(event("a"))() // prepares
	enqueue(named("evt", "a"), named("evt_x", "b"))()
	enqueue(named("evt", "a"))()
	is.Equal(line.count(enqueue(event("a"))), 1)
	is.Equal(line.count(enqueue(many...)), 1)
	is.Equal(line.count(enqueue(named("evt_first", "a"))), 1)
	is.Equal(line.count(enqueue(manyNamed...)), 1)
	is.Equal(line.count(enqueue(manyNamed...)), 2) // a second only to look at ids that were used before
}

func TestEnqueueWithinSavepoints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	tx := b.begin()
	_, err := delivery.Enqueue(b.ctx, tx, named("evt_1", "a"))
	b.is.NoErr(err)
	for _, commit := range []bool{false, true} {
		inner, err := tx.Begin(b.ctx)
		b.is.NoErr(err)
		_, err = delivery.Enqueue(b.ctx, inner, named("evt_2", "a"), event("a"))
		b.is.NoErr(err)
		if commit {
			b.is.NoErr(inner.Commit(b.ctx))
		} else {
			b.is.NoErr(inner.Rollback(b.ctx))
		}
	}
	enqueued, err := delivery.Enqueue(b.ctx, tx, named("evt_2", "a"), named("evt_3", "a"))
	b.is.NoErr(err)
	b.is.True(enqueued[0].Duplicate)
	b.is.NoErr(tx.Commit(b.ctx))
	b.is.Equal(b.counts(sub), "pending:4 ")
	var got []string
	for range 4 {
		claims := b.claim(10)
		b.is.Equal(len(claims), 1)
		got = append(got, claims[0].EventID)
		b.settle(delivery.Succeeded, claims...)
	}
	b.is.Equal([]string{got[0], got[1], got[3]}, []string{"evt_1", "evt_2", "evt_3"})
}

func TestEnqueueUnderEveryIsolation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		id := strings.ReplaceAll("evt_"+string(level), " ", "_")
		tx := b.begin(pgx.TxOptions{IsoLevel: level})
		_, err := delivery.Enqueue(b.ctx, tx, event("a"), named(id, "a"))
		b.is.NoErr(err)
		enqueued, err := delivery.Enqueue(b.ctx, tx, named(id, "a"))
		b.is.NoErr(err)
		b.is.True(enqueued[0].Duplicate)
		wrong := named(id, "b")
		_, err = delivery.Enqueue(b.ctx, tx, named(id+"_2", "b"), wrong)
		b.is.True(errors.Is(err, delivery.ErrConflict))
		b.is.NoErr(tx.Commit(b.ctx))

		tx = b.begin(pgx.TxOptions{IsoLevel: level}) // what was committed before it is seen
		enqueued, err = delivery.Enqueue(b.ctx, tx, named(id, "a"))
		b.is.NoErr(err)
		b.is.True(enqueued[0].Duplicate)
		b.is.NoErr(tx.Commit(b.ctx))
	}
	// Committed after the snapshot, it is a serialization failure like any other there.
	tx := b.begin(pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	_, err := tx.Exec(b.ctx, "SELECT 1")
	b.is.NoErr(err)
	b.enqueueEvents(named("evt_late", "a"))
	_, err = delivery.Enqueue(b.ctx, tx, named("evt_late", "a"))
	var pg *pgconn.PgError
	b.is.True(errors.As(err, &pg))
	b.is.Equal(pg.Code, "40001")
}

func TestNoSearchPathMatters(t *testing.T) {
	t.Parallel()
	b := setupOn(t, pgtest.NewDirect(t), delivery.StoreConfig{})
	b.exec("CREATE SCHEMA fake")
	for _, table := range []string{"events", "deliveries", "leases", "settled", "attempts", "subscriptions", "subscription_patterns", "subscription_secrets"} {
		b.exec(fmt.Sprintf("CREATE TABLE fake.%s (nothing int)", table))
	}
	b.exec("CREATE SEQUENCE fake.delivery_seq; CREATE SEQUENCE fake.fence_seq")
	for _, path := range []string{"", "fake", "fake, public"} {
		b.exec(fmt.Sprintf("ALTER DATABASE %s SET search_path = '%s'", b.pool.Config().ConnConfig.Database, path))
		if path != "" {
			b.exec(fmt.Sprintf("ALTER DATABASE %s SET search_path = %s", b.pool.Config().ConnConfig.Database, path))
		}
		b.pool.Reset()
		b.is.Equal(strings.Trim(one[string](b, "SHOW search_path"), `"`), path)
		live(b)
	}
	b.is.Equal(one[int64](b, "SELECT last_value FROM fake.fence_seq"), int64(1))
}

func TestEventTypesMatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	subs := map[string]delivery.SubscriptionID{}
	for _, patterns := range []string{"*", "invoice.paid", "invoice.*", "invoice.paid.*", "invoice.*,invoice.paid,*,invoice.paid", "invoice.paid,invoice.paid.*", "inv.*", "Invoice.*"} {
		subs[patterns] = b.subscribe(func(s *delivery.Settings) { s.EventTypes = strings.Split(patterns, ",") })
	}
	for eventType, want := range map[string][]string{
		"invoice.paid":         {"*", "invoice.*", "invoice.*,invoice.paid,*,invoice.paid", "invoice.paid", "invoice.paid,invoice.paid.*"},
		"invoice.paid.twice":   {"*", "invoice.*", "invoice.*,invoice.paid,*,invoice.paid", "invoice.paid,invoice.paid.*", "invoice.paid.*"},
		"invoice":              {"*", "invoice.*,invoice.paid,*,invoice.paid"},
		"invoices.paid":        {"*", "invoice.*,invoice.paid,*,invoice.paid"},
		"invoice.paid_in_full": {"*", "invoice.*", "invoice.*,invoice.paid,*,invoice.paid"},
	} {
		e := event(eventType)
		e.Type = eventType
		b.enqueueEvents(e)
		var got []string
		for _, c := range b.claim(100) {
			for patterns, sub := range subs {
				if sub == c.Subscription {
					got = append(got, patterns) // twice if it were delivered twice
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", eventType, got, want)
		}
		b.exec("DELETE FROM postlane.leases; DELETE FROM postlane.deliveries")
	}
	// A change of the types counts from then on.
	sub := subs["inv.*"]
	_, err := b.store.UpdateSubscription(b.ctx, sub, func(s *delivery.Settings) error { s.EventTypes = nil; return nil })
	b.is.NoErr(err)
	b.enqueue("a")
	b.is.Equal(b.counts(sub), "pending:1 ")
}

func TestBC13_NothingLeavesBeforeTheCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	b.exec("CREATE TABLE public.business (id text)")
	write := func(tx pgx.Tx, id string) {
		_, err := tx.Exec(b.ctx, "INSERT INTO public.business VALUES ($1)", id)
		b.is.NoErr(err)
		_, err = delivery.Enqueue(b.ctx, tx, named(id, "a"))
		b.is.NoErr(err)
		b.is.Equal(len(b.claim(10)), 0)
	}
	tx := b.begin()
	write(tx, "r1")
	b.is.NoErr(tx.Commit(b.ctx))
	claims := b.claim(10)
	b.is.Equal(len(claims), 1)
	b.is.Equal(one[int](b, "SELECT count(*) FROM public.business WHERE id = $1", claims[0].EventID), 1)
	b.settle(delivery.Succeeded, claims...)

	tx = b.begin()
	write(tx, "r2")
	b.is.NoErr(tx.Rollback(b.ctx))

	tx = b.begin()
	inner, err := tx.Begin(b.ctx)
	b.is.NoErr(err)
	write(inner, "r3")
	b.is.NoErr(inner.Rollback(b.ctx))
	b.is.NoErr(tx.Commit(b.ctx))
	b.is.Equal(len(b.claim(10)), 0)
	b.is.Equal(b.counts(sub), "delivered:1 ")
	b.is.Equal(one[int](b, "SELECT count(*) FROM postlane.events"), 1)
}

// There is no moment between the event and its deliveries: they are written together.
// And no second row could be: the key is the event and the subscription.
func TestBC14_OneDeliveryForEachSubscription(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var subs []delivery.SubscriptionID
	for range 3 {
		subs = append(subs, b.subscribe())
	}
	var wait sync.WaitGroup
	for round := range 20 { // sessions that are killed at any moment
		conn, err := pgx.ConnectConfig(b.ctx, pgtest.Direct(t, b.pool))
		b.is.NoErr(err)
		tx, err := conn.Begin(b.ctx)
		b.is.NoErr(err)
		wait.Go(func() {
			_, _ = delivery.Enqueue(b.ctx, tx, named(fmt.Sprint("evt_", round), "a"))
			_ = tx.Commit(b.ctx)
			_ = conn.Close(b.ctx)
		})
		b.exec("SELECT pg_terminate_backend($1, $2)", conn.PgConn().PID(), 10_000)
		wait.Wait()
		b.enqueueEvents(named(fmt.Sprint("evt_", round), "a")) // after the restart
	}
	b.is.Equal(one[int](b, "SELECT count(*) FROM postlane.events"), 20)
	for _, sub := range subs {
		b.is.Equal(b.counts(sub), "pending:20 ")
	}
	_, err := b.pool.Exec(b.ctx, `INSERT INTO postlane.deliveries (subscription_id, seq, tenant, event_id, event_type)
		SELECT subscription_id, seq, tenant, event_id, event_type FROM postlane.deliveries LIMIT 1`)
	var pg *pgconn.PgError
	b.is.True(errors.As(err, &pg) && pg.Code == "23505")
}

// With Serialize the order of an asset's events is that of the commits, however the
// transactions run beside each other.
func TestSerializeMakesConcurrentOrderExact(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe()
	b.exec("CREATE TABLE public.counter (asset text PRIMARY KEY, n int); INSERT INTO public.counter VALUES ('a', 0), ('b', 0)")
	const writers, each = 6, 8
	b.is.NoErr(together(writers, func(w int) error {
		for i := range each {
			err := pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) error {
				assets := []string{"a", "b"}
				if (w+i)%2 == 1 {
					slices.Reverse(assets) // named in any order, they are taken in one
				}
				if err := delivery.Serialize(b.ctx, tx, assets...); err != nil {
					return err
				}
				for _, asset := range assets {
					var n int
					// Without a lock of its own: Serialize is the one there is.
					if err := tx.QueryRow(b.ctx, "SELECT n FROM public.counter WHERE asset = $1", asset).Scan(&n); err != nil {
						return err
					}
					e := event(asset)
					e.Payload = fmt.Append(nil, n)
					if _, err := delivery.Enqueue(b.ctx, tx, e); err != nil {
						return err
					}
					if _, err := tx.Exec(b.ctx, "UPDATE public.counter SET n = $2 WHERE asset = $1", asset, n+1); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	for n := range writers * each {
		claims := b.claim(10)
		b.is.Equal(len(claims), 2)
		for _, c := range claims {
			b.is.Equal(string(c.Payload), fmt.Sprint(n))
		}
		_, err := b.store.Park(b.ctx, 100)
		b.is.NoErr(err)
		b.settle(delivery.Succeeded, claims...)
	}
	b.is.NoErr(delivery.Serialize(b.ctx, nil))
	b.is.True(errors.Is(delivery.Serialize(b.ctx, nil, "a\x00"), delivery.ErrInvalid))
}

func TestSerializeWaitsForTheOtherTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.begin(), b.begin()
	b.is.NoErr(delivery.Serialize(b.ctx, first, "", "a"))
	b.is.NoErr(delivery.Serialize(b.ctx, second, "b")) // another asset waits for nobody
	done := make(chan error, 1)
	go func() { done <- delivery.Serialize(b.ctx, second, "") }()
	pgtest.WaitForBlocked(t, b.pool, 1)
	b.is.NoErr(first.Commit(b.ctx))
	b.is.NoErr(<-done)
}
