package delivery_test

import (
	"errors"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// setupNow is setup with a clock that stands still at the present, from which DeliverAfter
// is bounded.
func setupNow(t *testing.T) (*bundle, *clock) {
	t.Helper()
	c := &clock{at: time.Now().Truncate(time.Microsecond)}
	return setupOn(t, pgtest.New(t), delivery.StoreConfig{Now: c.now}), c
}

func (b *bundle) ripen() int64 {
	b.t.Helper()
	n, _, err := b.store.Ripen(b.ctx, 1000)
	b.is.NoErr(err)
	return n
}

func eventIDs(claims []delivery.Claim) (list []string) {
	for _, c := range claims {
		list = append(list, c.EventID)
	}
	return list
}

func TestADelayedEventWaitsForItsTimeAndHoldsItsStream(t *testing.T) {
	t.Parallel()
	for _, together := range []bool{true, false} {
		b, c := setupNow(t)
		b.subscribe()
		first, late, behind, other := named("first", "a"), named("late", "a"), named("behind", "a"), named("other", "b")
		late.DeliverAfter = c.now().Add(time.Hour)
		if together {
			b.enqueueEvents(first, late, behind, other)
		} else {
			for _, e := range []delivery.Event{first, late, behind, other} {
				b.enqueueEvents(e)
			}
		}
		claims := b.claim(10)
		b.is.Equal(eventIDs(claims), []string{"first", "other"})
		runs, err := b.store.Ahead(b.ctx, claims, 10)
		b.is.NoErr(err)
		b.is.Equal(len(runs[0]), 0) // no run goes through what waits for its time
		b.settle(delivery.Succeeded, claims...)

		for range 3 {
			b.is.Equal(b.ripen(), int64(0))
			b.is.Equal(len(b.claim(10)), 0)
			_, err := b.store.Park(b.ctx, 25)
			b.is.NoErr(err)
		}
		_, next, err := b.store.Ripen(b.ctx, 10)
		b.is.NoErr(err)
		b.is.Equal(next, time.Hour)
		c.advance(time.Hour)
		b.is.Equal(b.ripen(), int64(1))
		for _, want := range []string{"late", "behind"} {
			claims = b.claim(10)
			b.is.Equal(eventIDs(claims), []string{want})
			b.settle(delivery.Succeeded, claims...)
		}
	}
}

func TestADelayedEventThatIsDiscardedLetsItsStreamGoOn(t *testing.T) {
	t.Parallel()
	b, c := setupNow(t)
	sub := b.subscribe()
	late := named("late", "")
	late.DeliverAfter = c.now().Add(delivery.MaxDelay)
	enqueued := b.enqueueEvents(late, named("behind", ""))
	entry := b.entry(sub, delivery.ID(enqueued[0].Seq))
	b.is.Equal(entry.State, delivery.Pending)
	b.is.True(entry.Due.Equal(late.DeliverAfter))
	b.is.NoErr(b.store.Discard(b.ctx, sub, entry.ID, "not any more"))
	b.is.Equal(eventIDs(b.claim(10)), []string{"behind"})
}

func TestTheFirstTimeOfAnEventCounts(t *testing.T) {
	t.Parallel()
	b, c := setupNow(t)
	sub := b.subscribe()
	e := named("evt", "")
	e.DeliverAfter = c.now().Add(time.Hour)
	again := e
	again.DeliverAfter = c.now().Add(2 * time.Hour)
	enqueued := b.enqueueEvents(e, again)
	again.DeliverAfter = time.Time{}
	b.is.True(b.enqueueEvents(again)[0].Duplicate)
	b.is.True(b.enqueueEvents(again, named("other", "a"))[0].Duplicate)
	b.is.True(b.entry(sub, delivery.ID(enqueued[0].Seq)).Due.Equal(e.DeliverAfter))
}

func TestATimeThatIsPastIsAtOnce(t *testing.T) {
	t.Parallel()
	b, c := setupNow(t)
	b.subscribe()
	e := named("evt", "")
	e.DeliverAfter = c.now()
	b.enqueueEvents(e)
	b.is.Equal(b.ripen(), int64(1))
	b.is.Equal(eventIDs(b.claim(1)), []string{"evt"})
}

func TestATimeThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	b, c := setupNow(t)
	for _, at := range []time.Time{time.Unix(-1, 0), {}, c.now().Add(delivery.MaxDelay + time.Hour), time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		e := event("")
		e.DeliverAfter = at
		_, err := delivery.Enqueue(b.ctx, b.begin(), e)
		var invalid *delivery.InvalidError
		b.is.Equal(errors.As(err, &invalid) && invalid.Field == "DeliverAfter", !at.IsZero())
	}
}
