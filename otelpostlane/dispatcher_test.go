package otelpostlane_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"
	"go.opentelemetry.io/otel/trace"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/pgtest"
	"github.com/postlane-go/postlane/otelpostlane"
	"github.com/postlane-go/postlane/postlanetest"
	"github.com/postlane-go/postlane/verify"
)

// Every attempt of an event, hours apart, is linked to the span that enqueued it; also of
// those that a dispatcher takes behind another of their stream.
func TestEachAttemptIsLinkedToTheEnqueueingSpan(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	pool := pgtest.New(t)
	clock := postlanetest.NewClock(time.Time{})
	store := postlanetest.NewStore(t, pool, clock)
	receiver := postlanetest.NewReceiver(t)
	receiver.Subscribe(store, "acme")
	receiver.Answer(func(d *verify.Delivery) int {
		if d.Attempt < 2 {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	})
	local, err := guard.New(guard.Policy{Development: true})
	is.NoErr(err)
	plain, err := sender.New(sender.Config{Guard: local})
	is.NoErr(err)
	defer plain.Close()
	spans := &recorder{}
	traced, err := otelpostlane.NewSender(plain, otelpostlane.Config{Provider: spans})
	is.NoErr(err)

	causes := map[string]string{}
	for n, id := range []string{"one", "two", "three", "untraced"} {
		ctx := t.Context()
		if id != "untraced" {
			cause := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{0xa, byte(n)}, SpanID: trace.SpanID{0xb, byte(n)}})
			causes[id] = cause.SpanID().String()
			ctx = trace.ContextWithSpanContext(ctx, cause)
		}
		is.NoErr(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := delivery.Enqueue(ctx, tx, delivery.Event{ID: id, Tenant: "acme", Type: "invoice.paid", Asset: "in_1", Payload: []byte("{}")})
			return err
		}))
	}
	for range 6 {
		postlanetest.Deliver(t, delivery.Config{Store: store, Sender: traced})
		clock.Advance(time.Hour)
	}
	is.Equal(len(spans.spans), 8) // two attempts each
	for _, s := range spans.spans {
		cause := causes[s.attributes()["messaging.message.id"]]
		if cause == "" {
			is.Equal(len(s.config.Links()), 0)
			continue
		}
		is.Equal(len(s.config.Links()), 1)
		is.Equal(s.config.Links()[0].SpanContext.SpanID().String(), cause)
	}
}
