// Package receiver is a webhook endpoint that judges its sender.
//
// It is what `postlane receive` and `postlane dev` run, and what tests and
// benchmarks send to. It is an independent observer: it knows the contract of
// a request and nothing of the code that sends one, so its verdict is evidence.
//
// # What it judges
//
// Every path is the endpoint of one subscription, and a stream is one path
// with one postlane-asset header, an absent one included:
//
//	request ──▶ open in its stream ──▶ read ──▶ headers, timestamp, signature
//	               │ another open?                │ wrong: refused with 4xx,
//	               ▼                              │ no further judgement
//	            overlap                           ▼
//	                     webhook-id seen before on this path?
//	                        │ yes                        │ no
//	                        ▼                            ▼
//	                     duplicate; conflicting       an event: out of order if its
//	                     if body, type, asset         seq is not above all before it;
//	                     or seq differ                else a gap if its prev is not
//	                                                  the highest seq before it
//
// A stream counts as open until just before the answer is written, so a sender
// that waits for its answer can never be accused of an overlap.
//
// A gap is what the stream looks like from here: a delivery that died or was
// discarded without one request ever arriving leaves one too, and is out of
// order if it is revived and arrives after all. Whoever counts these as faults
// makes no such deliveries, or subtracts them.
//
// An event is accepted once it was answered with 2xx. [Receiver.Lost] and
// [Receiver.Phantoms] compare what was accepted, and what arrived, with what a
// producer committed.
//
// # What it costs
//
// An event is remembered by two hashes, a stream by one and its last seq; no
// id, payload or asset is kept. 1,000,000 events, each in a stream of its own,
// hold about 90 MB. [Config.Light] only counts, for the raw rate of a sender.
package receiver
