package outbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/outbox"
)

func TestEnqueuer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	memory, err := outbox.NewMemory(outbox.StoreConfig{})
	is.NoErr(err)
	direct := &broker{}
	strict := &outbox.Enqueuer{Stage: memory.Stage}
	loose := &outbox.Enqueuer{Stage: memory.Stage, WithoutTx: direct}
	m := outbox.Message{ID: "m", Topic: "t"}

	_, err = strict.Enqueue(t.Context(), m)
	is.Equal(err, outbox.ErrNoTx)
	_, err = strict.Enqueue(outbox.WithTx(t.Context(), nil), m)
	is.Equal(err, outbox.ErrNoTx)

	for _, e := range []*outbox.Enqueuer{strict, loose} { // with a transaction both stage
		tx, err := memory.Begin(t.Context())
		is.NoErr(err)
		_, err = e.Enqueue(outbox.WithTx(t.Context(), tx), m)
		is.NoErr(err)
		is.NoErr(tx.Rollback(t.Context()))
	}
	is.Equal(len(direct.received()), 0)

	staged, err := loose.Enqueue(t.Context(), m)
	is.NoErr(err)
	is.Equal(staged, []outbox.Staged{{ID: "m"}})
	is.Equal(direct.received(), []string{"m"})
	is.Equal(memory.Retained(), 0)
	_, err = loose.Enqueue(t.Context(), outbox.Message{Topic: "t", RunAt: time.Now()})
	is.True(errors.Is(err, outbox.ErrInvalid))
	direct.set(map[string]error{"m": errors.New("refused")})
	_, err = loose.Enqueue(t.Context(), m)
	is.True(err != nil)
}
