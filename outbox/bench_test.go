package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/outbox"
)

// Measure with fsync on, against a server of one's own:
//
//	POSTLANE_TEST_DATABASE_URL=… go test -run - -bench . ./outbox

// BenchmarkStage stages messages of 500 bytes, one a transaction.
func BenchmarkStage(b *testing.B) {
	for _, stagers := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("stagers=%d", stagers), func(b *testing.B) {
			config, err := pgxpool.ParseConfig(pgtest.URL(b))
			check(b, err)
			config.MaxConns = int32(stagers)
			pool, err := pgxpool.NewWithConfig(context.Background(), config)
			check(b, err)
			defer pool.Close()
			payload := make([]byte, 500)
			var workers sync.WaitGroup
			work := make(chan struct{})
			for range stagers {
				workers.Go(func() {
					for range work {
						err := pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
							_, err := outbox.Stage(context.Background(), tx, outbox.Message{Topic: "t", Payload: payload})
							return err
						})
						if err != nil {
							b.Error(err)
						}
					}
				})
			}
			for b.Loop() {
				work <- struct{}{}
			}
			close(work)
			workers.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// BenchmarkRelay publishes to nowhere, 100 messages a pass, out of a backlog that is
// kept at its size and was never analyzed.
func BenchmarkRelay(b *testing.B) {
	shapes := []struct{ name, queue string }{
		{"one-queue", "'default'"}, {"20-queues", "'q' || g % 20"}, {"own-queues", "'q' || g"},
	}
	for _, shape := range shapes {
		for _, backlog := range []int{1_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/backlog=%d", shape.name, backlog), func(b *testing.B) {
				pool := pgtest.New(b)
				for _, table := range []string{"messages", "pending", "published", "leases"} {
					_, err := pool.Exec(b.Context(), "ALTER TABLE postlane.outbox_"+table+" SET (autovacuum_enabled = off)")
					check(b, err)
				}
				load := func(n int) {
					_, err := pool.Exec(b.Context(), fmt.Sprintf(`
						WITH staged AS (
							INSERT INTO postlane.outbox_messages (seq, max_attempts, id, queue, topic, payload)
							SELECT nextval('postlane.outbox_seq'), 20, gen_random_uuid()::text, %s, 't', convert_to(repeat('x', 500), 'utf8')
							FROM generate_series(1, %d) g RETURNING seq, id, queue)
						INSERT INTO postlane.outbox_pending (seq, since, size, queue, id) SELECT seq, now(), 500, queue, id FROM staged`, shape.queue, n))
					check(b, err)
				}
				load(backlog)
				_, err := pool.Exec(b.Context(), "CHECKPOINT")
				check(b, err)
				store, err := outbox.NewPostgres(pool, outbox.StoreConfig{})
				check(b, err)
				nowhere := outbox.PublisherFunc(func(context.Context, outbox.Message) error { return nil })
				relay, err := outbox.NewRelay(outbox.RelayConfig{Store: store, Publisher: nowhere, Batch: 100, Logger: slog.New(slog.DiscardHandler)})
				check(b, err)
				published, refill := 0, 0
				for b.Loop() {
					n, err := relay.Tick(b.Context())
					check(b, err)
					published += n
					if refill += n; refill >= 900 {
						b.StopTimer()
						load(refill)
						refill = 0
						b.StartTimer()
					}
				}
				b.ReportMetric(float64(published)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
