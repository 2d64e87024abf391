package traceparent_test

import (
	"context"
	"testing"

	"github.com/matryer/is"
	"go.opentelemetry.io/otel/trace"

	"github.com/postlane-go/postlane/internal/traceparent"
)

const sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestTextAndSpanAreTheSame(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(traceparent.Of(context.Background()), "")
	for text, flags := range map[string]trace.TraceFlags{sampled: trace.FlagsSampled, sampled[:53] + "00": 0} {
		span, ok := traceparent.Parse(text)
		is.True(ok)
		is.True(span.IsRemote())
		is.Equal(span.TraceID().String(), text[3:35])
		is.Equal(span.SpanID().String(), text[36:52])
		is.Equal(span.TraceFlags(), flags)
		is.Equal(traceparent.Of(trace.ContextWithSpanContext(context.Background(), span)), text)
	}
	later, ok := traceparent.Parse("cc" + sampled[2:53] + "ff") // of a later version: what is known of it
	is.True(ok)
	is.Equal(later.TraceFlags(), trace.FlagsSampled)
}

func TestWhatIsNoTraceContext(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, text := range []string{
		"", "00", sampled + "-x", sampled + "\n", "ff" + sampled[2:], "0" + sampled[1:52], sampled[:52], "00-4BF92F3577B34DA6A3CE929D0E0E4736" + sampled[35:],
		"00-00000000000000000000000000000000" + sampled[35:], sampled[:36] + "0000000000000000-01", sampled[:53] + "0g",
	} {
		_, ok := traceparent.Parse(text)
		is.True(!ok)
	}
}
