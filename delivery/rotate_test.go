package delivery_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery"
)

func TestRotationsAtOnceLeaveOneCurrentSecret(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	const rotations = 8
	errs := make([]error, rotations)
	var group sync.WaitGroup
	for i := range rotations {
		group.Go(func() { _, errs[i] = b.store.RotateSecret(b.ctx, sub, time.Hour) })
	}
	group.Wait()
	b.is.NoErr(errors.Join(errs...))
	b.is.Equal(one[int](b, "SELECT count(*) FROM postlane.subscription_secrets WHERE expires_at IS NULL"), 1)
	b.is.Equal(one[int](b, "SELECT count(*) FROM postlane.subscription_secrets WHERE expires_at > now()"), rotations)
}

func TestRotatingADeletedSubscriptionChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe()
	b.is.NoErr(b.store.DeleteSubscription(b.ctx, sub))
	before := b.state()
	_, err := b.store.RotateSecret(b.ctx, sub, time.Hour)
	b.is.True(errors.Is(err, delivery.ErrNotFound))
	b.unchanged(before)
}
