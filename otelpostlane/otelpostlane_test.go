package otelpostlane_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/otelpostlane"
)

// recorder is a TracerProvider whose tracer keeps the spans it starts.
type recorder struct {
	embedded.TracerProvider

	mu    sync.Mutex
	spans []*span
}

// span records what is said of it.
type span struct {
	noop.Span

	name   string
	config trace.SpanConfig
	ctx    trace.SpanContext
	said   []attribute.KeyValue
	status codes.Code
	text   string
	ended  bool
}

func (r *recorder) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{r: r} }

type tracer struct {
	embedded.Tracer

	r *recorder
}

func (t tracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	n := byte(len(t.r.spans) + 1)
	s := &span{name: name, config: trace.NewSpanStartConfig(options...), ctx: trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{n}, SpanID: trace.SpanID{n}, TraceFlags: trace.FlagsSampled,
	})}
	s.said = s.config.Attributes()
	t.r.spans = append(t.r.spans, s)
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) SpanContext() trace.SpanContext           { return s.ctx }
func (s *span) SetAttributes(list ...attribute.KeyValue) { s.said = append(s.said, list...) }
func (s *span) SetStatus(code codes.Code, text string)   { s.status, s.text = code, text }
func (s *span) End(...trace.SpanEndOption)               { s.ended = true }

func (s *span) attributes() map[string]string {
	m := map[string]string{}
	for _, a := range s.said {
		m[string(a.Key)] = a.Value.String()
	}
	return m
}

// fake answers as it was told, and keeps what it was asked to send.
type fake struct {
	result sender.Result
	sent   []sender.Request
}

func (f *fake) Timeout() time.Duration { return 7 * time.Second }
func (f *fake) Send(_ context.Context, r sender.Request) sender.Result {
	f.sent = append(f.sent, r)
	return f.result
}

const (
	cause   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	attempt = "00-01000000000000000000000000000000-0100000000000000-01"
)

func request() sender.Request {
	return sender.Request{
		URL: "https://hooks.example.com/secret-path?token=hidden", EventID: "evt_1", EventType: "invoice.paid", Asset: "in_private", Attempt: 3,
		Body: []byte("payload"), Traceparent: cause, Header: http.Header{"X-Key": {"credential"}, "Traceparent": {"their own"}},
	}
}

func TestAnAttemptIsASpanLinkedToItsCause(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	spans, next := &recorder{}, &fake{result: sender.Result{Outcome: sender.Delivered, Answered: true, Status: 204}}
	s, err := otelpostlane.NewSender(next, otelpostlane.Config{Provider: spans})
	is.NoErr(err)
	is.Equal(s.Timeout(), 7*time.Second)
	is.Equal(s.Send(t.Context(), request()).Status, 204)
	is.Equal(len(spans.spans), 1)
	got := spans.spans[0]
	is.Equal(got.name, "deliver invoice.paid")
	is.True(got.ended && got.config.NewRoot())
	is.Equal(got.config.SpanKind(), trace.SpanKindClient)
	is.Equal(len(got.config.Links()), 1)
	link := got.config.Links()[0].SpanContext
	is.Equal("00-"+link.TraceID().String()+"-"+link.SpanID().String()+"-01", cause)
	is.Equal(got.attributes(), map[string]string{
		"messaging.system": "postlane", "messaging.operation.type": "send", "messaging.operation.name": "deliver", "messaging.message.id": "evt_1",
		"messaging.message.body.size": "7", "http.request.method": "POST", "http.request.resend_count": "2", "http.response.status_code": "204",
		"url.scheme": "https", "server.address": "hooks.example.com", "server.port": "443",
		"postlane.event.type": "invoice.paid", "postlane.attempt": "3", "postlane.outcome": "delivered",
	})
	is.Equal(got.status, codes.Unset)
	is.Equal(next.sent[0].Header, request().Header) // nothing is forwarded unless it is asked for
}

func TestFailuresTellTheirKindAndNoMore(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for want, result := range map[string]sender.Result{
		"503":                  {Outcome: sender.HTTPStatus, Answered: true, Status: 503, Body: []byte("their words")},
		"0":                    {Outcome: sender.HTTPStatus, Answered: true},
		"connection_reset":     {Outcome: sender.ConnectionReset, Err: errors.New("read tcp 10.0.0.1:4711: their words")},
		string(sender.Blocked): {Outcome: sender.Blocked, Err: errors.New("10.0.0.1")},
	} {
		spans := &recorder{}
		s, err := otelpostlane.NewSender(&fake{result: result}, otelpostlane.Config{Provider: spans})
		is.NoErr(err)
		r := request()
		r.Traceparent = "" // enqueued under no span
		s.Send(t.Context(), r)
		got := spans.spans[0]
		is.Equal(got.status, codes.Error)
		is.Equal(got.text, result.Outcome.Text())
		is.Equal(got.attributes()["error.type"], want)
		is.Equal(len(got.config.Links()), 0)
		all := fmt.Sprint(got.name, got.attributes(), got.text)
		for _, private := range []string{"secret-path", "hidden", "in_private", "payload", "credential", "their words", "10.0.0.1"} {
			is.True(!strings.Contains(all, private))
		}
	}
}

func TestTheTraceIsForwardedByChoice(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for forward, want := range map[otelpostlane.Forward]string{otelpostlane.ForwardAttempt: attempt, otelpostlane.ForwardEvent: cause} {
		next := &fake{}
		s, err := otelpostlane.NewSender(next, otelpostlane.Config{Provider: &recorder{}, Forward: forward})
		is.NoErr(err)
		r := request()
		s.Send(t.Context(), r)
		is.Equal(next.sent[0].Header.Values("traceparent"), []string{want})
		is.Equal(next.sent[0].Header.Get("X-Key"), "credential")
		is.Equal(r.Header, request().Header) // the subscription's own is as it was

		r.Header, r.Traceparent = nil, ""
		s.Send(t.Context(), r)
		is.Equal(next.sent[1].Header == nil, forward == otelpostlane.ForwardEvent) // there is none to forward
	}
}

func TestConfigurationsThatCannotWork(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, c := range []otelpostlane.Config{{}, {Provider: &recorder{}, Forward: 3}, {Provider: &recorder{}, Forward: -1}} {
		_, err := otelpostlane.NewSender(&fake{}, c)
		is.True(err != nil)
	}
	_, err := otelpostlane.NewSender(nil, otelpostlane.Config{Provider: &recorder{}})
	is.True(err != nil)
}

func TestNoSDKIsPulledIn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	output, err := exec.Command("go", "list", "-deps", ".", "../delivery", "../outbox", "../verify").Output()
	is.NoErr(err)
	packages := strings.Fields(string(output))
	is.True(slices.Contains(packages, "go.opentelemetry.io/otel/trace"))
	for _, p := range packages {
		is.True(!strings.HasPrefix(p, "go.opentelemetry.io/otel/sdk"))
	}
}
