package riverpub_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/outbox"
	"github.com/postlane-go/postlane/outbox/publish/riverpub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRelayToRiver(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pool := pgtest.New(t)
	quiet := slog.New(slog.DiscardHandler)
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	is.NoErr(err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	is.NoErr(err)
	client, err := river.NewClient(driver, &river.Config{Logger: quiet}) // only inserts
	is.NoErr(err)
	publisher, err := riverpub.New(client, pool, riverpub.Config{
		Options: func(outbox.Message) river.InsertOpts { return river.InsertOpts{MaxAttempts: 7} },
	})
	is.NoErr(err)

	is.NoErr(pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := outbox.Stage(t.Context(), tx,
			outbox.Message{ID: "m1", Topic: "send_mail", Payload: []byte(`{"to":"a"}`), Headers: map[string]string{"h": "v"}},
			outbox.Message{ID: "m2", Topic: "send_mail", Payload: []byte(`{"to":"b"}`)},
			outbox.Message{ID: "bad", Topic: "send_mail", Payload: []byte(`{`)},
			outbox.Message{ID: "m3", Topic: "send_mail", Payload: []byte(`{"to":"c"}`)})
		return err
	}))
	store, err := outbox.NewPostgres(pool, outbox.StoreConfig{})
	is.NoErr(err)
	relay, err := outbox.NewRelay(outbox.RelayConfig{Store: store, Publisher: publisher, Exhausted: outbox.Park, Logger: quiet})
	is.NoErr(err)
	n, err := relay.Tick(t.Context())
	is.NoErr(err)
	is.Equal(n, 3)
	is.Equal(relay.Stats().Parked, int64(1))

	jobs, err := client.JobList(t.Context(), river.NewJobListParams())
	is.NoErr(err)
	var ids, arguments []string
	for _, job := range jobs.Jobs {
		var metadata riverpub.Metadata
		is.NoErr(json.Unmarshal(job.Metadata, &metadata))
		ids = append(ids, metadata.ID)
		arguments = append(arguments, string(job.EncodedArgs))
		is.Equal(job.Kind, "send_mail")
		is.Equal(job.MaxAttempts, 7)
	}
	is.Equal(ids, []string{"m1", "m2", "m3"})
	is.Equal(arguments, []string{`{"to": "a"}`, `{"to": "b"}`, `{"to": "c"}`})

	err = publisher.Publish(t.Context(), outbox.Message{ID: "bad", Topic: "t", Payload: []byte("no")})
	is.True(errors.Is(err, outbox.ErrPermanent))
}
