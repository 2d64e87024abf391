// Package otelpostlane traces deliveries with OpenTelemetry.
//
//	the transaction                       hours later, in another process
//	───────────────                       ───────────────────────────────
//	span "pay invoice"  ◀── link ──────── span "deliver invoice.paid", attempt 1
//	    └ Enqueue       ◀── link ──────── span "deliver invoice.paid", attempt 2 ──▶ traceparent, by choice
//
// Enqueue and Stage keep the trace context of the span they are called under. Each attempt
// is a span of its own, the root of a trace of its own, and linked to that one: an attempt
// may come hours after what caused it, and a trace that is open for so long is of no use.
//
// A span says what is safe to say: the event's id and type, the number of the attempt, the
// endpoint's host, the status and the outcome. It holds no payload, no secret, no asset,
// and of the URL no path.
//
// Only the API of OpenTelemetry is imported; which SDK records is the program's choice.
package otelpostlane

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/traceparent"
)

// Name is that of the tracer.
const Name = "github.com/postlane-go/postlane/otelpostlane"

// Forward says which trace context an endpoint gets, in the header traceparent. An endpoint
// is a stranger: it learns the ids, and may send its own spans under them.
type Forward int

const (
	// ForwardNone sends none.
	ForwardNone Forward = iota
	// ForwardAttempt sends that of the attempt's span, so that the endpoint's work
	// becomes part of the attempt's trace.
	ForwardAttempt
	// ForwardEvent sends that under which the event was enqueued, so that the
	// endpoint's work becomes part of its trace. Without one, none is sent.
	ForwardEvent
)

// Config says what is traced. Only Provider is required.
type Config struct {
	// Provider makes the tracer; a program's is otel.GetTracerProvider().
	Provider trace.TracerProvider

	// Forward says which trace context endpoints get. Default: ForwardNone.
	Forward Forward
}

// Sender is a delivery.Sender that traces another.
type Sender struct {
	next    delivery.Sender
	tracer  trace.Tracer
	forward Forward
}

var _ delivery.Sender = (*Sender)(nil)

// NewSender returns a Sender that makes attempts by next, for delivery.Config.Sender.
func NewSender(next delivery.Sender, config Config) (*Sender, error) {
	switch {
	case next == nil:
		return nil, errors.New("otelpostlane: a Sender needs another that sends")
	case config.Provider == nil:
		return nil, errors.New("otelpostlane: give a Provider, such as otel.GetTracerProvider()")
	case config.Forward < ForwardNone || config.Forward > ForwardEvent:
		return nil, errors.New("otelpostlane: Forward is none of the constants")
	}
	return &Sender{next: next, tracer: config.Provider.Tracer(Name), forward: config.Forward}, nil
}

// Timeout is the longest that Send takes.
func (s *Sender) Timeout() time.Duration { return s.next.Timeout() }

// Send makes an attempt within a span.
func (s *Sender) Send(ctx context.Context, r sender.Request) sender.Result {
	options := []trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes(&r)...),
	}
	if cause, ok := traceparent.Parse(r.Traceparent); ok {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: cause}))
	}
	ctx, span := s.tracer.Start(ctx, "deliver "+r.EventType, options...)
	defer span.End()
	s.forwardTo(ctx, &r)
	result := s.next.Send(ctx, r)
	span.SetAttributes(attribute.String("postlane.outcome", string(result.Outcome)))
	if result.Answered {
		span.SetAttributes(attribute.Int("http.response.status_code", result.Status))
	}
	if result.Outcome != sender.Delivered {
		class := string(result.Outcome)
		if result.Answered {
			class = strconv.Itoa(result.Status)
		}
		span.SetAttributes(attribute.String("error.type", class))
		// Result.Err may hold addresses and what a peer said.
		span.SetStatus(codes.Error, result.Outcome.Text())
	}
	return result
}

// forwardTo sets the header on a copy: the request's is its subscription's, and shared.
func (s *Sender) forwardTo(ctx context.Context, r *sender.Request) {
	value := ""
	switch s.forward {
	case ForwardAttempt:
		value = traceparent.Of(ctx)
	case ForwardEvent:
		value = r.Traceparent
	case ForwardNone:
	}
	if value == "" {
		return
	}
	header := r.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Traceparent", value)
	r.Header = header
}

// attributes are by OpenTelemetry's conventions for HTTP and messaging where they have a
// name.
func attributes(r *sender.Request) []attribute.KeyValue {
	list := []attribute.KeyValue{
		attribute.String("messaging.system", "postlane"),
		attribute.String("messaging.operation.type", "send"),
		attribute.String("messaging.operation.name", "deliver"),
		attribute.String("messaging.message.id", r.EventID),
		attribute.Int("messaging.message.body.size", len(r.Body)),
		attribute.String("http.request.method", http.MethodPost),
		attribute.String("postlane.event.type", r.EventType),
		attribute.Int("postlane.attempt", r.Attempt),
	}
	if r.Attempt > 1 {
		list = append(list, attribute.Int("http.request.resend_count", r.Attempt-1))
	}
	if u, err := url.Parse(r.URL); err == nil {
		list = append(list, attribute.String("url.scheme", u.Scheme), attribute.String("server.address", u.Hostname()))
		port := u.Port()
		if port == "" {
			port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
		}
		if n, err := strconv.Atoi(port); err == nil {
			list = append(list, attribute.Int("server.port", n))
		}
	}
	return list
}
