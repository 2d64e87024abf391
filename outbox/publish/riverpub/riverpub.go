// Package riverpub publishes outbox messages as jobs of River.
//
// An application whose River tables are in the same database inserts its jobs with
// River's own InsertTx and needs no outbox. This is for jobs that belong to another
// database, or that have to keep their order until they are inserted.
//
// The job's kind is the message's topic, its arguments are the payload, which must
// be JSON. River does not drop duplicates that a crash leaves behind: workers tell
// them by the id in the job's metadata.
package riverpub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/postlane-go/postlane/outbox"
)

// Metadata is what a job's metadata says about the message that it was.
type Metadata struct {
	ID          string            `json:"postlane_id"`
	Queue       string            `json:"postlane_queue"`
	Tenant      string            `json:"postlane_tenant,omitempty"`
	Headers     map[string]string `json:"postlane_headers,omitempty"`
	Traceparent string            `json:"traceparent,omitempty"`
}

// Config is what a Publisher may be told. The zero value works.
type Config struct {
	// Options says how a job is inserted. Its Metadata is set afterwards.
	// Default: River's own defaults.
	Options func(outbox.Message) river.InsertOpts
}

// Beginner opens transactions: a *pgxpool.Pool of River's database.
type Beginner interface {
	Begin(context.Context) (pgx.Tx, error)
}

// Publisher is an outbox.BatchPublisher into River. It may be used from any goroutine.
type Publisher struct {
	client *river.Client[pgx.Tx]
	db     Beginner
	config Config
}

var _ outbox.BatchPublisher = (*Publisher)(nil)

// New returns a Publisher that inserts with client, which may be an insert-only one,
// in transactions of db.
func New(client *river.Client[pgx.Tx], db Beginner, config Config) (*Publisher, error) {
	if client == nil || db == nil {
		return nil, errors.New("riverpub: a Publisher needs a client and a pool")
	}
	if config.Options == nil {
		config.Options = func(outbox.Message) river.InsertOpts { return river.InsertOpts{} }
	}
	return &Publisher{client, db, config}, nil
}

// args are a payload as the arguments of a job.
type args struct {
	kind    string
	payload json.RawMessage
}

func (a args) Kind() string                 { return a.kind }
func (a args) MarshalJSON() ([]byte, error) { return a.payload, nil }

// Publish inserts a job. A payload that is not JSON is permanent (outbox.Permanent).
func (p *Publisher) Publish(ctx context.Context, m outbox.Message) error {
	_, err := p.PublishBatch(ctx, []outbox.Message{m})
	return err
}

// PublishBatch inserts jobs in one transaction, those before the first message that
// cannot be one.
func (p *Publisher) PublishBatch(ctx context.Context, messages []outbox.Message) (published int, err error) {
	jobs := make([]river.InsertManyParams, 0, len(messages))
	var refused error // of the message behind jobs
	for _, m := range messages {
		if !json.Valid(m.Payload) {
			refused = outbox.Permanent(fmt.Errorf("riverpub: the payload of message %q is not JSON, which the arguments of a job must be", m.ID))
			break
		}
		opts := p.config.Options(m)
		if opts.Metadata, err = json.Marshal(Metadata{m.ID, m.Queue, m.Tenant, m.Headers, m.Traceparent}); err != nil {
			return 0, outbox.Permanent(err)
		}
		jobs = append(jobs, river.InsertManyParams{Args: args{m.Topic, m.Payload}, InsertOpts: &opts})
	}
	if len(jobs) == 0 {
		return 0, refused
	}
	err = pgx.BeginFunc(ctx, p.db, func(tx pgx.Tx) error {
		_, err := p.client.InsertManyTx(ctx, tx, jobs)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("riverpub: %w", err)
	}
	return len(jobs), refused
}
