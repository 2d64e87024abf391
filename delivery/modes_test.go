package delivery_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/internal/postgres"
)

// live leads events through everything that the data layer does, on whatever pool.
func live(b *bundle) {
	b.t.Helper()
	text := "for tests"
	sub := b.subscribe(func(s *delivery.Settings) {
		s.Description, s.MaxInFlight, s.MaxAttempts, s.DisableAfter = &text, 50, 3, 5
		s.EventTypes = []string{"thing.*", "other"}
	})
	_, err := b.store.UpdateSubscription(b.ctx, sub, func(s *delivery.Settings) error {
		s.Description, s.MaxInFlight, s.OnDead = nil, 0, delivery.Hold
		return nil
	})
	b.is.NoErr(err)
	_, err = b.store.RotateSecret(b.ctx, sub, time.Minute)
	b.is.NoErr(err)
	secrets, err := b.store.SecretsOf(b.ctx, sub)
	b.is.NoErr(err)
	b.is.Equal(len(secrets), 2)
	page, err := b.store.Subscriptions(b.ctx, tenant, 0, 1000)
	b.is.NoErr(err)
	b.is.True(len(page) > 0)

	// enqueue: new, again, in conflict, of every kind of asset and payload
	odd := event(`it's "odd" \ $1 {a,b} 日本`)
	odd.ID = "evt_" + sub.String()
	odd.Payload = []byte("\x00\xff'\\ $1")
	large := event("large")
	large.Payload = bytes.Repeat([]byte{0, 1, 2, 255}, 30_000)
	id := ids(b.enqueueEvents(odd, event(""), event(""), large, event("fails"), event("gone"), event("lost")))
	b.is.True(b.enqueueEvents(odd)[0].Duplicate)
	tx := b.begin()
	b.is.NoErr(delivery.Serialize(b.ctx, tx, "", odd.Asset))
	conflict := odd
	conflict.Payload = nil
	_, err = delivery.Enqueue(b.ctx, tx, event("undone"), conflict)
	b.is.True(errors.Is(err, delivery.ErrConflict))
	b.is.NoErr(tx.Commit(b.ctx))
	b.is.Equal(b.counts(sub), "pending:7 ")

	// claim
	claims, err := b.store.Claim(b.ctx, delivery.ClaimRequest{Claimant: "o'brien", Max: 100, MaxInFlight: 20, Lease: time.Minute, After: -5})
	b.is.NoErr(err)
	b.is.Equal(len(claims), 6)
	b.is.Equal(string(of(claims, odd.Asset).Payload), string(odd.Payload))
	big := of(claims, "large")
	b.is.True(big.Payload == nil)
	payload, err := b.store.Payload(b.ctx, &big)
	b.is.NoErr(err)
	b.is.True(bytes.Equal(payload, large.Payload))
	parked, err := b.store.Park(b.ctx, 100)
	b.is.NoErr(err)
	b.is.Equal(parked, int64(0))
	all := make([]*delivery.Claim, len(claims))
	for i := range claims {
		all[i] = &claims[i]
	}
	lost, err := b.store.Renew(b.ctx, all, time.Minute)
	b.is.NoErr(err)
	b.is.Equal(len(lost), 0)

	// settle: delivered, released, postponed, failed, dead and held, lost
	stale := of(claims, "lost")
	stale.Fence--
	odds, none, fails, gone := of(claims, odd.Asset), of(claims, ""), of(claims, "fails"), of(claims, "gone")
	settlements, err := b.store.Settle(b.ctx, []delivery.Result{
		{Claim: &odds, Verdict: delivery.Succeeded, Attempt: delivery.AttemptEvidence{
			Started: time.Now(), Outcome: "delivered", Status: 200, Answered: true, Answer: []byte("\x00\xff"), AnswerCut: true,
			Headers: []byte("A: '\n"), DNS: time.Millisecond,
		}},
		{Claim: &none, Verdict: delivery.Succeeded},
		{Claim: &big, Verdict: delivery.Postponed, Delay: time.Millisecond},
		{Claim: &fails, Verdict: delivery.Failed, Delay: time.Millisecond, Attempt: delivery.AttemptEvidence{Outcome: "timeout", Error: `it's "late"`}},
		{Claim: &gone, Verdict: delivery.Failed, Gone: true},
		{Claim: &stale, Verdict: delivery.Succeeded},
	})
	b.is.NoErr(err)
	want := []delivery.Settled{"delivered", "delivered", "pending", "pending", "held", "lost"}
	for i, s := range settlements {
		b.is.Equal(s.State, want[i])
	}
	b.is.Equal(b.subscription(sub).State, delivery.Disabled)
	_, err = b.store.Enable(b.ctx, sub)
	b.is.NoErr(err)

	// reclaim, ripen
	b.exec("UPDATE postlane.leases SET lease_until = now() - interval '1 second'")
	b.exec("UPDATE postlane.deliveries SET due_at = now() WHERE due_at IS NOT NULL")
	reclaimed, err := b.store.Reclaim(b.ctx, 10)
	b.is.NoErr(err)
	b.is.Equal(len(reclaimed), 1)
	ripened, _, err := b.store.Ripen(b.ctx, 10)
	b.is.NoErr(err)
	b.is.Equal(ripened, int64(2))
	woken, err := b.store.WakeOrphans(b.ctx)
	b.is.NoErr(err)
	b.is.Equal(woken, int64(0))
	oldest, err := b.store.OldestDue(b.ctx)
	b.is.NoErr(err)
	b.is.True(oldest >= 0)

	// the log
	attempts, err := b.store.Attempts(b.ctx, sub, id[0])
	b.is.NoErr(err)
	b.is.Equal(len(attempts), 1)
	b.is.Equal(string(attempts[0].Answer), "\x00\xff")
	b.is.Equal(attempts[0].DNS, time.Millisecond)
	b.is.Equal(len(b.list(sub, delivery.Filter{})), 7)
	b.is.Equal(len(b.list(sub, delivery.Filter{OfAsset: true})), 2)
	b.is.Equal(len(b.list(sub, delivery.Filter{OfAsset: true, Asset: odd.Asset, States: []delivery.DeliveryState{delivery.Delivered, delivery.Dead}})), 1)
	b.is.Equal(len(b.list(sub, delivery.Filter{EventType: "thing.changed", Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)})), 7)
	streams, err := b.store.Streams(b.ctx, sub, nil, 2)
	b.is.NoErr(err)
	b.is.Equal(len(streams), 2)
	streams, err = b.store.Streams(b.ctx, sub, &streams[1].Asset, 100)
	b.is.NoErr(err)
	b.is.Equal(len(streams), 3)
	_, err = b.store.Event(b.ctx, tenant, odd.ID)
	b.is.NoErr(err)

	// operators
	b.is.NoErr(b.store.Revive(b.ctx, sub, id[5]))
	claims = b.claim(100)
	b.is.Equal(len(claims), 5)
	b.settle(delivery.Released, of(claims, ""))
	b.settleAs(func(r *delivery.Result) { r.Verdict, r.Gone = delivery.Failed, true }, of(claims, "gone"))
	b.is.NoErr(b.store.ReleaseHeld(b.ctx, sub, id[5]))
	b.is.NoErr(b.store.Revive(b.ctx, sub, id[5]))
	b.is.NoErr(b.store.Discard(b.ctx, sub, id[5], "it's enough"))
	b.is.True(errors.Is(b.store.Revive(b.ctx, sub, id[5]), delivery.ErrNotDead))

	// the end
	b.exec("UPDATE postlane.leases SET claimed_at = now() - interval '1 minute'")
	_, err = b.store.Pause(b.ctx, sub, "it's over")
	b.is.NoErr(err)
	b.is.NoErr(b.store.DeleteSubscription(b.ctx, sub))
	b.is.Equal(b.settle(delivery.Succeeded, of(claims, "large")), []delivery.Settled{"delivered"})
	b.is.Equal(b.settle(delivery.Failed, of(claims, "fails"), of(claims, "lost")), []delivery.Settled{"discarded", "discarded"})
	n, err := b.store.DiscardDeleted(b.ctx, 100)
	b.is.NoErr(err)
	b.is.Equal(n, int64(1))
	b.is.Equal(b.counts(sub), "delivered:3 discarded:4 ")
}

// Behind a pooler in transaction mode no statement may be prepared by name. Every mode
// of pgx works.
func TestBC05_TheLifeOfEventsInEveryQueryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			config, err := pgxpool.ParseConfig(pgtest.DirectURL(t) + "&default_query_exec_mode=" + mode)
			if err != nil {
				t.Fatal(err)
			}
			config.MaxConns = 4
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			b := setupOn(t, pool, delivery.StoreConfig{})
			for range 2 {
				live(b)
			}
			if mode == "exec" || mode == "simple_protocol" {
				var conns []*pgxpool.Conn // nothing was prepared on any of them
				for range pool.Stat().TotalConns() {
					c, err := pool.Acquire(b.ctx)
					b.is.NoErr(err)
					conns = append(conns, c)
				}
				for _, c := range conns {
					var prepared int
					b.is.NoErr(c.QueryRow(b.ctx, "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''", pgx.QueryExecModeSimpleProtocol).Scan(&prepared))
					b.is.Equal(prepared, 0)
					c.Release()
				}
			}
		})
	}
}

// What a pooler in transaction mode would lose is refused at the start, with what to set.
func TestADispatcherRefusesToPrepareBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	through := pgtest.ThroughPooler(t, pgtest.DirectURL(t), postgres.TransactionMode)
	run := func(mode string) error {
		pool, err := pgxpool.New(t.Context(), through+"&default_query_exec_mode="+mode)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		b := setupOn(t, pool, delivery.StoreConfig{})
		d, err := delivery.New(delivery.Config{Store: b.store, NoListen: true})
		b.is.NoErr(err)
		ctx, cancel := context.WithCancel(b.ctx)
		defer cancel()
		ended := make(chan error)
		go func() { ended <- d.Run(ctx) }()
		if mode != "cache_statement" {
			for !d.Dormant() { // it has asked for subscriptions
				runtime.Gosched()
			}
			cancel()
		}
		return <-ended
	}
	err := run("cache_statement")
	if err == nil || !strings.Contains(err.Error(), "default_query_exec_mode=cache_describe") {
		t.Error(err)
	}
	if err := run("cache_describe"); err != nil {
		t.Error(err)
	}
}
