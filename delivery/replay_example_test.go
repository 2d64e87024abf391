package delivery_test

import (
	"context"
	"fmt"
	"time"

	"github.com/postlane-go/postlane/delivery"
)

// Yesterday's invoices once more, to a subscription whose receiver lost them. Called again
// with the same ID, it goes on where it stopped, and sends nothing twice.
func ExampleStore_Replay() {
	again := func(ctx context.Context, store *delivery.Store, sub delivery.SubscriptionID) error {
		request := delivery.ReplayRequest{
			Subscription: sub, ID: "lost-2026-03-01", EventTypes: []string{"invoice.*"},
			Since: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Until: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC),
		}
		count, err := store.CountReplay(ctx, request)
		if err != nil {
			return err
		}
		fmt.Println(count.Events, "events")
		_, err = store.Replay(ctx, request)
		return err
	}
	_ = again
}
