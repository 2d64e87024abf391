package outbox_test

import (
	"testing"
	"time"

	"github.com/postlane-go/postlane/outbox"
)

func TestBC60_OperatorsNeedNoRelay(t *testing.T) {
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
