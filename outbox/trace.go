package outbox

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/trace"
)

// traceparent returns the W3C trace context of the span in ctx, "" where there
// is no valid one.
func traceparent(ctx context.Context) string {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return ""
	}
	return fmt.Sprintf("00-%s-%s-%s", span.TraceID(), span.SpanID(), span.TraceFlags()&trace.FlagsSampled)
}
