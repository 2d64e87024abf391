package delivery_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"github.com/postlane-go/postlane/delivery"
)

func TestAnEventComesFromTheSpanThatEnqueuesIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	const ofSpan, given = "00-01000000000000000000000000000000-0200000000000000-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	tx := b.begin()
	inSpan := trace.ContextWithSpanContext(b.ctx, span)
	one, other := named("one", ""), named("other", "a")
	other.Traceparent = given
	_, err := delivery.Enqueue(inSpan, tx, one)
	b.is.NoErr(err)
	_, err = delivery.Enqueue(inSpan, tx, other, named("third", ""))
	b.is.NoErr(err)
	_, err = delivery.Enqueue(b.ctx, tx, named("untraced", ""))
	b.is.NoErr(err)
	_, err = delivery.Enqueue(b.ctx, tx, one) // the same event, whatever span it comes from
	b.is.NoErr(err)

	rows, err := tx.Query(b.ctx, "SELECT coalesce(traceparent, 'NULL') FROM postlane.events ORDER BY seq")
	b.is.NoErr(err)
	stored, err := pgx.CollectRows(rows, pgx.RowTo[string])
	b.is.NoErr(err)
	b.is.Equal(stored, []string{ofSpan, given, ofSpan, "NULL"})

	other.Traceparent = "sampled"
	_, err = delivery.Enqueue(b.ctx, tx, other)
	var invalid *delivery.InvalidError
	b.is.True(errors.As(err, &invalid) && invalid.Field == "Traceparent")
}
