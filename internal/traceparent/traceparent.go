// Package traceparent is the W3C trace context in its one line of text.
package traceparent

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"go.opentelemetry.io/otel/trace"
)

var pattern = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$`)

// Of returns the trace context of the span in ctx, "" where there is no valid one.
func Of(ctx context.Context) string {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return ""
	}
	return fmt.Sprintf("00-%s-%s-%s", span.TraceID(), span.SpanID(), span.TraceFlags()&trace.FlagsSampled)
}

// Parse returns the span that a trace context names, and whether it names one.
func Parse(text string) (span trace.SpanContext, ok bool) {
	parts := pattern.FindStringSubmatch(text)
	if parts == nil || parts[1] == "ff" {
		return span, false
	}
	traceID, err := trace.TraceIDFromHex(parts[2])
	if err != nil {
		return span, false // all zero
	}
	spanID, err := trace.SpanIDFromHex(parts[3])
	if err != nil {
		return span, false
	}
	flags, err := strconv.ParseUint(parts[4], 16, 8)
	if err != nil {
		return span, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags) & trace.FlagsSampled, Remote: true,
	}), true
}
