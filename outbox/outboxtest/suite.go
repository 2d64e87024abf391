package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/outbox"
)

// Bed is a place where stores are made: a database, say.
type Bed struct {
	// Open returns a store on the bed, made with the given configuration. Several
	// stores of one bed hold the same messages, as those of several processes
	// do. A bed on which only one store can be made returns nil after the first.
	Open func(outbox.StoreConfig) outbox.Store
	// Begin opens a transaction to stage in.
	Begin func(context.Context) (pgx.Tx, error)
}

// Run proves that a store keeps the contract of outbox.Store. makeBed is called
// once for each case, and returns an empty bed that lasts for the test that it is given.
func Run(t *testing.T, makeBed func(*testing.T) Bed) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &suite{T: t, is: is.New(t), bed: makeBed(t), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
			s.a = s.open("a")
			c.run(s)
		})
	}
}

// lease is that of every store of the suite.
const lease = 2 * time.Second

// suite is one case at work: a store, and a clock that the case owns.
type suite struct {
	*testing.T
	is  *is.I
	bed Bed
	a   outbox.Store

	mu  sync.Mutex
	now time.Time
}

func (s *suite) open(claimant string) outbox.Store {
	s.Helper()
	store := s.bed.Open(outbox.StoreConfig{Claimant: claimant, Lease: new(lease), Now: s.clock})
	if store == nil {
		// The bed has one store: its own claims stand for those of another process.
		return s.a
	}
	return store
}

func (s *suite) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// pass moves the clock on.
func (s *suite) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *suite) begin() pgx.Tx {
	s.Helper()
	tx, err := s.bed.Begin(s.Context())
	s.is.NoErr(err)
	s.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (s *suite) commit(tx pgx.Tx) {
	s.Helper()
	s.is.NoErr(tx.Commit(s.Context()))
}

// stageIn stages messages of a queue in tx, with the given ids.
func (s *suite) stageIn(tx pgx.Tx, queue string, ids ...string) []outbox.Staged {
	s.Helper()
	var messages []outbox.Message
	for _, id := range ids {
		messages = append(messages, outbox.Message{ID: id, Topic: "t", Queue: queue, Payload: []byte(id)})
	}
	staged, err := s.a.Stage(s.Context(), tx, messages...)
	s.is.NoErr(err)
	return staged
}

// stage stages messages of a queue in a transaction of their own.
func (s *suite) stage(queue string, ids ...string) {
	s.Helper()
	tx := s.begin()
	s.stageIn(tx, queue, ids...)
	s.commit(tx)
}

func (s *suite) stageMessages(messages ...outbox.Message) []outbox.Staged {
	s.Helper()
	tx := s.begin()
	staged, err := s.a.Stage(s.Context(), tx, messages...)
	s.is.NoErr(err)
	s.commit(tx)
	return staged
}

func (s *suite) claim(store outbox.Store, limit int) []outbox.Claim {
	s.Helper()
	claims, err := store.Claim(s.Context(), limit)
	s.is.NoErr(err)
	return claims
}

// expect claims and compares the ids, in order.
func (s *suite) expect(store outbox.Store, limit int, ids ...string) []outbox.Claim {
	s.Helper()
	claims := s.claim(store, limit)
	if got := idsOf(claims); !slices.Equal(got, ids) {
		s.Fatalf("claimed %v, not %v", got, ids)
	}
	return claims
}

// lost asserts that a write was refused for exactly the given claims.
func (s *suite) lost(err error, claims ...outbox.Claim) {
	s.Helper()
	if !errors.Is(err, outbox.ErrLeaseLost) {
		s.Fatalf("the error is %v, not ErrLeaseLost", err)
	}
	lost := (*outbox.LeaseLostError)(nil)
	s.is.True(errors.As(err, &lost))
	s.is.Equal(idsOf(lost.Lost), idsOf(claims))
}

func (s *suite) published(store outbox.Store, claims ...outbox.Claim) {
	s.Helper()
	s.is.NoErr(store.MarkPublished(s.Context(), claims...))
}

func (s *suite) pending() outbox.Backlog {
	s.Helper()
	b, err := s.a.Pending(s.Context())
	s.is.NoErr(err)
	return b
}

func idsOf(claims []outbox.Claim) []string {
	ids := []string{}
	for _, c := range claims {
		ids = append(ids, c.ID)
	}
	return ids
}

// numbered returns prefix0, prefix1 and so on.
func numbered(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return ids
}
