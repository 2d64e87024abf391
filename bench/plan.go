package main

import (
	"fmt"
	"time"
)

// measurement says what to measure.
type measurement struct {
	// Workload is stage (a message in the caller's transaction, and its commit), relay
	// (work a backlog that is kept at its size, doing nothing with each message) or
	// deliver (work a backlog, sending each message to an endpoint).
	Workload string `json:"workload"`
	// Peer is who does it, or "none" for requests without a database.
	Peer string `json:"peer"`
	// Profile names settings of the peer; see its file.
	Profile string `json:"profile,omitempty"`
	// Concurrency is how many stage, or how many workers there are.
	Concurrency int `json:"concurrency"`
	// Backlog is how many messages wait at the start.
	Backlog int `json:"backlog,omitempty"`
	// Spread is how many queues, topics or streams they are spread over, for peers
	// that know such a thing.
	Spread int `json:"spread,omitempty"`
	// Delay is how long the endpoint takes to answer.
	Delay time.Duration `json:"delay_ns,omitempty"`
	// Duration is how long the timed part lasts at most.
	Duration time.Duration `json:"duration_ns"`
	// endpoint is where to send to.
	endpoint string
}

// group is what is compared with each other: the heading of a table.
func (m measurement) group() string {
	switch m.Workload {
	case "stage":
		return fmt.Sprintf("Stage in the caller's transaction, %d at once", m.Concurrency)
	case "relay":
		return fmt.Sprintf("Relay to nowhere, a backlog kept at %d", m.Backlog)
	default:
		return fmt.Sprintf("Deliver, the endpoint answers after %v", m.Delay)
	}
}

// name is what a table calls a measurement of a group.
func (m measurement) name() string {
	name := m.Peer
	if m.Profile != "" {
		name += ", " + m.Profile
	}
	if m.Workload != "stage" {
		name += fmt.Sprintf(", %d at work", m.Concurrency)
	}
	if m.Spread > 1 {
		name += fmt.Sprintf(", %d streams", m.Spread)
	}
	return name
}

// plan lists everything. With quick it is small enough to see that all of it works,
// and its figures say nothing.
func plan(quick bool) (list []measurement) {
	seconds, large, deliveries := 10*time.Second, 1_000_000, 200_000
	if quick {
		seconds, large, deliveries = time.Second, 20_000, 5_000
	}
	for _, stagers := range []int{1, 8, 32} {
		for _, peer := range []measurement{
			{Peer: "INSERT"}, {Peer: "postlane outbox"}, {Peer: "watermill-sql", Profile: "queue"}, {Peer: "river", Profile: "default"},
		} {
			peer.Workload, peer.Concurrency, peer.Spread, peer.Duration = "stage", stagers, 1, seconds
			list = append(list, peer)
		}
	}
	for _, backlog := range []int{1000, large} {
		for _, peer := range []measurement{
			{Peer: "postlane outbox", Concurrency: 1, Spread: 1},
			{Peer: "postlane outbox", Concurrency: 1, Spread: 16},
			{Peer: "watermill-sql", Profile: "queue", Concurrency: 1, Spread: 1},
			{Peer: "watermill-sql", Profile: "queue", Concurrency: 16, Spread: 16},
			{Peer: "river", Profile: "default", Concurrency: 500, Spread: 1},
			{Peer: "river", Profile: "bench", Concurrency: 500, Spread: 1},
		} {
			peer.Workload, peer.Backlog, peer.Duration = "relay", backlog, seconds
			list = append(list, peer)
		}
	}
	for _, delay := range []time.Duration{0, 50 * time.Millisecond} {
		none, dispatcher, gue, graphile := 64, 256, 32, 64
		if delay > 0 {
			none, dispatcher, gue, graphile = 1000, 1000, 200, 500
		}
		for _, peer := range []measurement{
			{Peer: "none", Concurrency: none, Spread: 1},
			{Peer: "postlane delivery", Concurrency: dispatcher, Spread: 1000},
			{Peer: "river", Profile: "default", Concurrency: 500, Spread: 1},
			{Peer: "river", Profile: "bench", Concurrency: 500, Spread: 1},
			{Peer: "gue", Profile: "run at", Concurrency: gue, Spread: 1},
			{Peer: "graphile-worker", Profile: "default", Concurrency: graphile, Spread: 1},
			{Peer: "graphile-worker", Profile: "performance", Concurrency: graphile, Spread: 1},
			{Peer: "watermill-sql", Profile: "queue", Concurrency: 16, Spread: 16},
			{Peer: "watermill-sql", Profile: "offsets", Concurrency: 64, Spread: 64},
		} {
			peer.Workload, peer.Backlog, peer.Delay, peer.Duration = "deliver", deliveries, delay, 2*seconds
			list = append(list, peer)
		}
	}
	return list
}
