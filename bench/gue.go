package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/vgarvardt/gue/v5"
	"github.com/vgarvardt/gue/v5/adapter/pgxv5"
)

// guePeer is gue. Profiles: "default" polls by priority, which sorts the whole backlog
// for each job; "run at" polls by time, which its index serves.
type guePeer struct {
	m      *measurement
	client *gue.Client // of setup
}

func newGue(m *measurement) (peer, error) { return &guePeer{m: m}, nil }

// gueSchema is that of its migrations/schema.sql, which the module does not embed.
const gueSchema = `CREATE TABLE gue_jobs (
	job_id TEXT NOT NULL PRIMARY KEY, priority SMALLINT NOT NULL, run_at TIMESTAMPTZ NOT NULL,
	job_type TEXT NOT NULL, args BYTEA NOT NULL, error_count INTEGER NOT NULL DEFAULT 0, last_error TEXT,
	queue TEXT NOT NULL, created_at TIMESTAMPTZ NOT NULL, updated_at TIMESTAMPTZ NOT NULL);
CREATE INDEX idx_gue_jobs_selector ON gue_jobs (queue, run_at, priority)`

func (p *guePeer) version() string { return moduleVersion("github.com/vgarvardt/gue/v5") }
func (p *guePeer) conns() int      { return p.m.Concurrency + 5 } // each worker holds one through its job

func (p *guePeer) setup(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, gueSchema); err != nil {
		return err
	}
	var err error
	p.client, err = gue.NewClient(pgxv5.NewConnPool(pool))
	return err
}

func gueJob(body []byte) *gue.Job { return &gue.Job{Queue: "bench", Type: "bench", Args: body} }

func (p *guePeer) stage(ctx context.Context, tx pgx.Tx, body []byte) error {
	return p.client.EnqueueTx(ctx, gueJob(body), pgxv5.NewTx(tx))
}

func (p *guePeer) bulk(ctx context.Context, _ *pgxpool.Pool, bodies [][]byte) error {
	jobs := make([]*gue.Job, len(bodies))
	for i, b := range bodies {
		jobs[i] = gueJob(b)
	}
	return p.client.EnqueueBatch(ctx, jobs)
}

func (p *guePeer) work(ctx context.Context, pool *pgxpool.Pool, h handler) (func() error, error) {
	client, err := gue.NewClient(pgxv5.NewConnPool(pool))
	if err != nil {
		return nil, err
	}
	options := []gue.WorkerPoolOption{gue.WithPoolQueue("bench"), gue.WithPoolGracefulShutdown(nil)}
	if p.m.Profile == "run at" {
		options = append(options, gue.WithPoolPollStrategy(gue.RunAtPollStrategy))
	}
	work := gue.WorkMap{"bench": func(ctx context.Context, j *gue.Job) error { return h(ctx, j.Args) }}
	workers, err := gue.NewWorkerPool(client, work, p.m.Concurrency, options...)
	if err != nil {
		return nil, err
	}
	return run(ctx, workers.Run), nil
}

func (p *guePeer) remaining(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	return count(ctx, pool, "SELECT count(*) FROM gue_jobs")
}
