package console

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postlane-go/postlane/outbox"
)

// parked stages messages of queues and parks the first n of them.
func (s *site) parked(n int, queues ...string) *outbox.Postgres {
	s.t.Helper()
	store, err := outbox.NewPostgres(s.pool, outbox.StoreConfig{})
	s.is.NoErr(err)
	s.is.NoErr(pgx.BeginFunc(s.ctx, s.pool, func(tx pgx.Tx) error {
		for i, queue := range queues {
			message := outbox.Message{ID: fmt.Sprint("m", i), Queue: queue, Topic: "invoice <b>paid</b>", Payload: []byte("a payload")}
			if _, err := store.Stage(s.ctx, tx, message); err != nil {
				return err
			}
		}
		return nil
	}))
	if n == 0 {
		return store
	}
	claims, err := store.Claim(s.ctx, n)
	s.is.NoErr(err)
	s.is.Equal(len(claims), n)
	for _, c := range claims {
		s.is.NoErr(store.Fail(s.ctx, outbox.Failure{Claim: c, Error: "the broker says <no>", Park: true}))
	}
	return store
}

func backlog(ctx context.Context, s *site, store *outbox.Postgres) outbox.Backlog {
	s.t.Helper()
	b, err := store.Pending(ctx)
	s.is.NoErr(err)
	b.OldestAge = 0
	return b
}

// An operator sees what the outbox holds and lets parked messages go again; no payload is
// shown.
func TestOutbox(t *testing.T) {
	t.Parallel()
	s := setup(t)
	v := s.signedIn(operatorKey)
	v.has("outbox", "No message is parked.", "0 pending; 0 scheduled; 0 parked")
	store := s.parked(3, "a", "b", "c", "d")
	p := v.has("outbox", "invoice <b>paid</b>", "the broker says <no>", "1 pending", "3 parked", "Retry all that are parked")
	s.is.True(!strings.Contains(p.body, "a payload"))
	p = v.has("outbox?queue=a", "m0", "Retry all that are parked in a")
	s.is.True(!strings.Contains(p.body, "m1"))
	v.has("outbox?state=pending", "m3")
	v.has("outbox?state=published", "No message is published.")

	v.in(v.seen(v.press("outbox/retry", "message", "m0")), "Retried: 1 message.")
	s.is.Equal(backlog(s.ctx, s, store), outbox.Backlog{Pending: 2, Parked: 2})
	v.in(v.seen(v.press("outbox/retry", "message", "m0")), "Nothing was retried")
	v.in(v.seen(v.press("outbox/retry", "parked", "all", "queue", "b")), "Retried: 1 message.")
	v.in(v.seen(v.press("outbox/retry", "parked", "all")), "Retried: 1 message.", "No message is parked.")
	s.is.Equal(backlog(s.ctx, s, store), outbox.Backlog{Pending: 4})
	s.is.Equal(v.press("outbox/retry").status, http.StatusBadRequest)
	s.is.Equal(one[int](s, `SELECT count(*) FROM postlane.audit WHERE action = 'retry-messages' AND outcome = 'ok' AND detail = '1 retried'`), 3)
	s.is.Equal(v.get("outbox?after=nonsense").status, http.StatusBadRequest)
	s.is.Equal(v.get("outbox?state=lost").status, http.StatusBadRequest)
}

// A list longer than a page goes on, and neither repeats nor skips.
func TestOutboxPages(t *testing.T) {
	t.Parallel()
	s := setup(t)
	queues := make([]string, 120)
	for i := range queues {
		queues[i] = fmt.Sprint("q", i)
	}
	s.parked(0, queues...)
	v := s.signedIn(operatorKey)
	seen := map[string]bool{}
	for path := "outbox?state=pending"; path != ""; {
		p := v.get(path)
		for _, m := range rowKeys.FindAllStringSubmatch(p.body, -1) {
			s.is.True(!seen[m[1]])
			seen[m[1]] = true
		}
		path = p.next()
	}
	s.is.Equal(len(seen), len(queues))
}
