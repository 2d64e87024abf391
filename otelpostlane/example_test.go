package otelpostlane_test

import (
	"go.opentelemetry.io/otel/trace"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/otelpostlane"
)

// Each attempt becomes a span, linked to the one that enqueued its event.
func ExampleNewSender() {
	traced := func(store *delivery.Store, plain delivery.Sender, provider trace.TracerProvider) (*delivery.Dispatcher, error) {
		sender, err := otelpostlane.NewSender(plain, otelpostlane.Config{Provider: provider})
		if err != nil {
			return nil, err
		}
		return delivery.New(delivery.Config{Store: store, Sender: sender})
	}
	_ = traced
}
