package receiver

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Header names as net/http keys them: a direct look-up, where Header.Get
// canonicalises at every call.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
	headerType      = "Postlane-Event-Type"
	headerAsset     = "Postlane-Asset"
	headerSeq       = "Postlane-Stream-Seq"
	headerPrev      = "Postlane-Stream-Prev"
	headerAttempt   = "Postlane-Attempt"
)

// Arrival is one request, without its payload.
type Arrival struct {
	Path     string
	ID       string // webhook-id
	Type     string // postlane-event-type
	Asset    string // postlane-asset
	HasAsset bool   // false: the stream of no asset
	Seq      int64  // postlane-stream-seq
	Prev     int64  // postlane-stream-prev, 0 or absent: first of its stream
	Attempt  int    // postlane-attempt
	At       time.Time
	Findings Finding // the judgement
}

// First reports whether this is the first arrival of its event.
func (a Arrival) First() bool { return a.Findings&Duplicate == 0 }

// seconds of the webhook-timestamp, and which of seq and prev could be read.
type reading struct {
	timestamp     int64
	seqOK, prevOK bool
	missing       string // the first header missing, doubled or unreadable
	refuse        bool   // the request cannot be judged at all
}

// read takes the arrival's fields from a request's headers.
func (a *Arrival) read(h http.Header) (r reading) {
	fault := func(name string) {
		if r.missing == "" {
			r.missing = name
		}
	}
	var ok bool
	// A dot in the id would let two messages share a signature.
	if a.ID, ok = single(h, headerID); !ok || a.ID == "" || strings.Contains(a.ID, ".") {
		fault("webhook-id")
		r.refuse = true
	}
	var text string
	if text, ok = single(h, headerTimestamp); !ok {
		fault("webhook-timestamp")
		r.refuse = true
	} else if r.timestamp, ok = positive(text); !ok {
		r.timestamp = -1 // judged as a wrong timestamp, not as a missing one
	}
	if a.Type, ok = single(h, headerType); !ok || a.Type == "" {
		fault("postlane-event-type")
	}
	if text, ok = single(h, headerAttempt); ok {
		var n int64
		n, ok = positive(text)
		a.Attempt = int(n)
	}
	if !ok {
		fault("postlane-attempt")
	}
	if text, ok = single(h, headerSeq); ok {
		a.Seq, r.seqOK = positive(text)
	}
	if !r.seqOK {
		fault("postlane-stream-seq")
	}
	switch len(h[headerPrev]) {
	case 0:
		r.prevOK = true
	case 1:
		a.Prev, r.prevOK = positive(h[headerPrev][0])
		r.prevOK = r.prevOK || h[headerPrev][0] == "0"
	}
	if !r.prevOK {
		fault("postlane-stream-prev")
	}
	if v := h[headerAsset]; len(v) > 0 {
		a.Asset, a.HasAsset = v[0], true
		if len(v) > 1 || v[0] == "" { // no asset is an absent header, not an empty one
			fault("postlane-asset")
		}
	}
	return r
}

// single returns a header that must be there exactly once: a second line is
// one that many receivers never read.
func single(h http.Header, name string) (string, bool) {
	if v := h[name]; len(v) == 1 {
		return v[0], true
	}
	return "", false
}

// positive reads digits alone, as strconv does not: it takes a sign.
func positive(s string) (int64, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n > 0
}

// String names the request for a person.
func (a Arrival) String() string {
	asset := "-"
	if a.HasAsset {
		asset = printable(a.Asset)
	}
	return fmt.Sprintf("%s asset=%s seq=%d prev=%d id=%s attempt=%d",
		printable(a.Path), asset, a.Seq, a.Prev, printable(a.ID), a.Attempt)
}

// printable quotes what could steer a terminal or blur the fields of a line.
func printable(s string) string {
	const longest = 200
	if len(s) > longest {
		s = s[:longest] + "…"
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == '"' || s[i] >= 0x7f {
			return strconv.Quote(s)
		}
	}
	if s == "" {
		return `""`
	}
	return s
}
