package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverPeer is River. Profiles: "default" is a Config of zero values but MaxWorkers;
// "bench" has the FetchCooldown and FetchPollInterval of its own `river bench`.
type riverPeer struct {
	m *measurement
	// inserter is the client of setup, and that of work once there is one.
	inserter *river.Client[pgx.Tx]
}

func newRiver(m *measurement) (peer, error) { return &riverPeer{m: m}, nil }

type riverArgs struct {
	Body json.RawMessage `json:"body"`
}

func (riverArgs) Kind() string { return "bench" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	h handler
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	return w.h(ctx, job.Args.Body)
}

func (p *riverPeer) version() string { return moduleVersion("github.com/riverqueue/river") }
func (p *riverPeer) conns() int      { return 20 }

func (p *riverPeer) setup(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	if _, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	// It inserts with the tuned settings where there are such: the limit on its
	// notifications follows FetchCooldown.
	p.inserter, err = river.NewClient(riverpgxv5.New(pool), p.config())
	return err
}

func (p *riverPeer) config() *river.Config {
	config := &river.Config{Logger: quiet()}
	if p.m.Profile == "bench" {
		config.FetchCooldown, config.FetchPollInterval = 2*time.Millisecond, 20*time.Millisecond
	}
	return config
}

func (p *riverPeer) stage(ctx context.Context, tx pgx.Tx, body []byte) error {
	_, err := p.inserter.InsertTx(ctx, tx, riverArgs{body}, nil)
	return err
}

func (p *riverPeer) bulk(ctx context.Context, _ *pgxpool.Pool, bodies [][]byte) error {
	params := make([]river.InsertManyParams, len(bodies))
	for i, b := range bodies {
		params[i].Args = riverArgs{b}
	}
	_, err := p.inserter.InsertManyFast(ctx, params)
	return err
}

func (p *riverPeer) work(ctx context.Context, pool *pgxpool.Pool, h handler) (func() error, error) {
	config := p.config()
	config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: p.m.Concurrency}}
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, &riverWorker{h: h})
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	p.inserter = client
	return func() error { return client.Stop(context.WithoutCancel(ctx)) }, nil
}

func (p *riverPeer) remaining(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	return count(ctx, pool, "SELECT count(*) FROM river_job WHERE state <> 'completed'")
}
