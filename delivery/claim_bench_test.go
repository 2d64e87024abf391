package delivery_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// BenchmarkClaim claims 200 deliveries of 500 bytes at once. Its allocations are those of
// decoding them, and of the driver.
func BenchmarkClaim(b *testing.B) {
	const n = 200
	ctx, pool := b.Context(), pgtest.New(b)
	g, err := guard.New(guard.Policy{Development: true})
	noError(b, err)
	store, err := delivery.NewStore(pool, delivery.StoreConfig{Guard: g})
	noError(b, err)
	_, _, err = store.CreateSubscription(ctx, "acme", delivery.Settings{URL: "http://127.0.0.1:8099/a"})
	noError(b, err)
	events := make([]delivery.Event, n)
	for i := range events {
		events[i] = delivery.Event{Tenant: "acme", Type: "thing.changed", Asset: fmt.Sprint("asset ", i), Payload: bytes.Repeat([]byte("x"), 500)}
	}
	noError(b, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := delivery.Enqueue(ctx, tx, events...)
		return err
	}))
	b.ReportAllocs()
	for b.Loop() {
		claims, err := store.Claim(ctx, delivery.ClaimRequest{Claimant: "bench", Max: n, MaxInFlight: n, Lease: time.Minute})
		b.StopTimer()
		noError(b, err)
		if len(claims) != n {
			b.Fatalf("%d claims", len(claims))
		}
		given := make([]*delivery.Claim, n)
		for i := range claims {
			given[i] = &claims[i]
		}
		_, err = store.Release(ctx, given)
		noError(b, err)
		b.StartTimer()
	}
}

func noError(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
