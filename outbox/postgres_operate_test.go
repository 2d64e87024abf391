package outbox_test

import (
	"errors"
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

// Each list goes on where it ended, in its own order.
func TestListsGoOnWhereTheyEnded(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	store := d.store(outbox.StoreConfig{Now: func() time.Time { return now }})
	stage := func(id, queue string, runAt time.Time) {
		tx := d.begin()
		_, err := store.Stage(t.Context(), tx, outbox.Message{ID: id, Topic: "t", Queue: queue, RunAt: runAt})
		d.is.NoErr(err)
		d.is.NoErr(tx.Commit(t.Context()))
	}
	stage("due last", "b", now.Add(3*time.Hour))
	stage("due first", "a", now.Add(2*time.Hour))
	stage("joins late", "b", now.Add(time.Minute))
	for _, id := range []string{"m1", "m2", "m3"} {
		stage(id, map[string]string{"m1": "b", "m2": "a", "m3": "b"}[id], time.Time{})
		now = now.Add(time.Second)
	}
	now = now.Add(time.Minute)
	_, err := store.Claim(t.Context(), 1) // lets the late one join its queue
	d.is.NoErr(err)

	for _, c := range []struct {
		state outbox.State
		queue string
		want  []string
	}{
		{outbox.StatePending, "", []string{"m1", "m2", "m3", "joins late"}},
		{outbox.StatePending, "b", []string{"joins late", "m1", "m3"}},
		{outbox.StateScheduled, "", []string{"due first", "due last"}},
		{outbox.StateScheduled, "b", []string{"due last"}},
		{outbox.StateParked, "", nil},
	} {
		var got []string
		for request := (outbox.ListRequest{State: c.state, Queue: c.queue, Max: 1}); ; {
			list, err := store.List(t.Context(), request)
			d.is.NoErr(err)
			if len(list) == 0 {
				break
			}
			got = append(got, list[0].ID)
			request.After = list[0].Cursor
		}
		d.is.Equal(got, c.want)
	}
	for _, wrong := range []string{"x", "1", "1.x", "-1.1", "9223372036854775807.1"} {
		_, err := store.List(t.Context(), outbox.ListRequest{State: outbox.StatePending, After: wrong})
		d.is.True(errors.Is(err, outbox.ErrCursor))
	}
}
