// Package sqlexamples shows how an invoice is paid and its event enqueued in one
// transaction, by each of the ways in which Go programs use database/sql. Its test
// runs them all, with pgx's driver and with lib/pq.
package sqlexamples

import (
	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/outbox"
)

// paid is the event of a paid invoice.
func paid(id string) delivery.Event {
	return delivery.Event{Tenant: "acme", Type: "invoice.paid", Asset: id, Payload: []byte(`{"id":"` + id + `"}`)}
}

// receipt is a message that is not a webhook.
func receipt(id string) outbox.Message {
	return outbox.Message{Topic: "mail.receipt", Queue: id, Payload: []byte(`{"invoice":"` + id + `"}`)}
}
