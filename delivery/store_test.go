package delivery_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/pgtest"
)

const tenant = "acme"

// bundle is a store on a database of its own.
type bundle struct {
	t     *testing.T
	is    *is.I
	ctx   context.Context
	pool  *pgxpool.Pool
	store *delivery.Store
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return setupOn(t, pgtest.New(t), delivery.StoreConfig{})
}

// setupOn is setup on a pool and with a configuration of the test's own.
func setupOn(t *testing.T, pool *pgxpool.Pool, config delivery.StoreConfig) *bundle {
	t.Helper()
	is := is.New(t)
	g, err := guard.New(guard.Policy{Development: true})
	is.NoErr(err)
	config.Guard = g
	store, err := delivery.NewStore(pool, config)
	is.NoErr(err)
	return &bundle{t: t, is: is, ctx: t.Context(), pool: pool, store: store}
}

// clock is a time that a test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// setupClock is setup with a clock that stands still until it is moved.
func setupClock(t *testing.T) (*bundle, *clock) {
	t.Helper()
	c := &clock{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	return setupOn(t, pgtest.New(t), delivery.StoreConfig{Now: c.now}), c
}

// state is every row that the data layer holds, with where it stands and which
// transaction wrote it: equal before and after, nothing was written.
func (b *bundle) state() string {
	b.t.Helper()
	text := ""
	for _, table := range []string{"subscriptions", "subscription_secrets", "events", "deliveries", "leases", "settled", "attempts"} {
		var rows *string
		err := b.pool.QueryRow(b.ctx, fmt.Sprintf(
			`SELECT string_agg(t.ctid::text || ' ' || t.xmin::text || ' ' || t::text, E'\n' ORDER BY t.ctid) FROM postlane.%s t`, table)).Scan(&rows)
		b.is.NoErr(err)
		text += table + ":\n"
		if rows != nil {
			text += *rows + "\n"
		}
	}
	return text
}

// unchanged fails the test if anything was written since state was taken.
func (b *bundle) unchanged(state string) {
	b.t.Helper()
	if now := b.state(); now != state {
		b.t.Fatalf("changed\nfrom\n%s\nto\n%s", state, now)
	}
}

// one reads one value.
func one[T any](b *bundle, sql string, args ...any) (v T) {
	b.t.Helper()
	b.is.NoErr(b.pool.QueryRow(b.ctx, sql, args...).Scan(&v))
	return v
}

// subscribe adds a subscription; change may edit its settings.
func (b *bundle) subscribe(change ...func(*delivery.Settings)) delivery.SubscriptionID {
	b.t.Helper()
	settings := delivery.Settings{URL: "http://127.0.0.1:8099/hook"}
	for _, f := range change {
		f(&settings)
	}
	sub, _, err := b.store.CreateSubscription(b.ctx, tenant, settings)
	b.is.NoErr(err)
	return sub.ID
}

// enqueue enqueues events, one an asset given, in one transaction.
func (b *bundle) enqueue(assets ...string) []delivery.Enqueued {
	b.t.Helper()
	events := make([]delivery.Event, len(assets))
	for i, a := range assets {
		events[i] = event(a)
	}
	return b.enqueueEvents(events...)
}

func (b *bundle) enqueueEvents(events ...delivery.Event) (enqueued []delivery.Enqueued) {
	b.t.Helper()
	b.is.NoErr(pgx.BeginFunc(b.ctx, b.pool, func(tx pgx.Tx) (err error) {
		enqueued, err = delivery.Enqueue(b.ctx, tx, events...)
		return err
	}))
	return enqueued
}

func event(asset string) delivery.Event {
	return delivery.Event{Tenant: tenant, Type: "thing.changed", Asset: asset, Payload: []byte(`{"a":1}`)}
}

// claim claims up to n for a claimant of its own.
func (b *bundle) claim(n int) []delivery.Claim {
	b.t.Helper()
	claims, err := b.store.Claim(b.ctx, request(n))
	b.is.NoErr(err)
	return claims
}

func request(n int) delivery.ClaimRequest {
	return delivery.ClaimRequest{Claimant: "test", Max: n, MaxInFlight: 100, Lease: time.Minute}
}

// settle settles claims and returns what became of each.
func (b *bundle) settle(v delivery.Verdict, claims ...delivery.Claim) []delivery.Settled {
	b.t.Helper()
	return b.settleAs(func(r *delivery.Result) { r.Verdict = v }, claims...)
}

func (b *bundle) settleAs(f func(*delivery.Result), claims ...delivery.Claim) []delivery.Settled {
	b.t.Helper()
	results := make([]delivery.Result, len(claims))
	for i := range claims {
		results[i] = delivery.Result{Claim: &claims[i], Attempt: delivery.AttemptEvidence{Outcome: "http_status", Status: 500, Answered: true}}
		f(&results[i])
	}
	settlements, err := b.store.Settle(b.ctx, results)
	b.is.NoErr(err)
	states := make([]delivery.Settled, len(settlements))
	for i, s := range settlements {
		states[i] = s.State
	}
	return states
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.ctx, sql, args...)
	b.is.NoErr(err)
}

func (b *bundle) counts(sub delivery.SubscriptionID) string {
	b.t.Helper()
	counts, err := b.store.Counts(b.ctx, sub)
	b.is.NoErr(err)
	text := ""
	for _, s := range delivery.DeliveryStates {
		if counts[s] > 0 {
			text += fmt.Sprintf("%s:%d ", s, counts[s])
		}
	}
	return text
}

// assets lists the assets of claims, in their order.
func assets(claims []delivery.Claim) []string {
	list := make([]string, len(claims))
	for i, c := range claims {
		list[i] = c.Asset
	}
	return list
}

// of returns the claim of an asset.
func of(claims []delivery.Claim, asset string) delivery.Claim {
	for _, c := range claims {
		if c.Asset == asset {
			return c
		}
	}
	return delivery.Claim{}
}

func TestLifeOfADelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	b.enqueue("a", "a", "b", "")

	claims := b.claim(10)
	b.is.Equal(len(claims), 3) // the first of each stream
	b.is.Equal(b.counts(sub), "pending:1 delivering:3 ")
	b.is.Equal(len(b.claim(10)), 0)

	b.settle(delivery.Succeeded, claims...)
	b.is.Equal(b.counts(sub), "pending:1 delivered:3 ")
	next := b.claim(10)
	b.is.Equal(assets(next), []string{"a"})
	b.is.Equal(next[0].Prev, of(claims, "a").Seq)
	b.settle(delivery.Failed, next...)
	b.is.Equal(b.counts(sub), "pending:1 delivered:3 ")
}
