package sender

import (
	"net/http"
	"strconv"
	"time"
)

// Outcome is what became of an attempt. The values are stable: they are
// stored, shown to tenants and used as metric labels.
type Outcome string

const (
	Delivered  Outcome = "delivered"   // answered 200 to 299
	HTTPStatus Outcome = "http_status" // answered anything else, see Result.Status

	Timeout        Outcome = "timeout"         // connected, and no complete answer in time
	ConnectTimeout Outcome = "connect_timeout" // no TCP connection in time
	TLSTimeout     Outcome = "tls_timeout"     // connected, and no TLS handshake in time

	DNSNotFound Outcome = "dns_not_found" // the name does not exist or has no address
	DNSFailure  Outcome = "dns_failure"   // the resolver failed, refused or timed out

	ConnectionRefused Outcome = "connection_refused"
	ConnectionReset   Outcome = "connection_reset"  // reset, or closed while the request was written
	ConnectionClosed  Outcome = "connection_closed" // closed without a complete answer
	Unreachable       Outcome = "unreachable"       // no route, or another failure to connect

	TLSUntrusted Outcome = "tls_untrusted"  // certificate of an unknown authority, self-signed, or not for servers
	TLSExpired   Outcome = "tls_expired"    // certificate expired or not yet valid
	TLSWrongHost Outcome = "tls_wrong_host" // certificate for another name or address
	TLSHandshake Outcome = "tls_handshake"  // no agreement: version, cipher, client certificate, or not TLS at all

	ProtocolError Outcome = "protocol_error" // the answer is not HTTP/1.1, or its headers are too large
	Blocked       Outcome = "blocked"        // the guard refused the URL or every address

	InvalidRequest Outcome = "invalid_request" // the Request cannot be sent as it is: nothing was
	LocalFailure   Outcome = "local_failure"   // out of file descriptors, ports or buffers here
	Canceled       Outcome = "canceled"        // the caller's context ended first
)

// texts are what a tenant may read: no address, no URL, nothing of what a peer
// or this network said.
var texts = map[Outcome]string{
	Delivered:         "delivered",
	HTTPStatus:        "the endpoint did not answer with a 2xx status",
	Timeout:           "the endpoint did not answer in time",
	ConnectTimeout:    "no connection to the endpoint in time",
	TLSTimeout:        "the endpoint did not complete the TLS handshake in time",
	DNSNotFound:       "the endpoint's host name does not exist or has no address",
	DNSFailure:        "the endpoint's host name could not be looked up for now",
	ConnectionRefused: "the endpoint refused the connection",
	ConnectionReset:   "the endpoint reset the connection",
	ConnectionClosed:  "the endpoint closed the connection before a complete answer",
	Unreachable:       "the endpoint could not be reached",
	TLSUntrusted:      "the endpoint's certificate is not from a trusted authority",
	TLSExpired:        "the endpoint's certificate is expired or not valid yet",
	TLSWrongHost:      "the endpoint's certificate is for another host",
	TLSHandshake:      "no TLS connection could be agreed on with the endpoint",
	ProtocolError:     "the endpoint's answer is not valid HTTP/1.1",
	Blocked:           "the endpoint's URL or address is not allowed",
	InvalidRequest:    "the request could not be built; check the subscription's custom headers",
	LocalFailure:      "the sender was short of resources",
	Canceled:          "the attempt was called off by the sender",
}

// Text describes the outcome in words that a tenant may see.
func (o Outcome) Text() string {
	if text, ok := texts[o]; ok {
		return text
	}
	return string(o)
}

// Result is what an attempt brought. Header, Body and Location are the
// endpoint's words and safe to store (UTF-8 without controls, but for Body,
// which is raw); Err is the operator's alone.
type Result struct {
	Outcome Outcome

	// Status is the final status code: what the peer wrote, which need not be
	// between 100 and 599. It is 0 if there was no answer; Answered tells that
	// apart from an answer of "000".
	Status   int
	Answered bool

	// Header is the answer's header, repaired and cut to 8 KiB of names and
	// values, without Set-Cookie.
	Header http.Header
	// Body is the beginning of the answer's body as it came, up to
	// Config.MaxBodyBytes: any bytes, of any encoding.
	Body []byte
	// BodyTruncated says that Body is not the whole body: it was longer,
	// slower, or broke off.
	BodyTruncated bool
	// RetryAfter is what a 429 or 503 asked for, as of Started, up to
	// MaxRetryAfter; 0 if it asked for nothing.
	RetryAfter time.Duration
	// Location is that header of a 3xx answer, to be shown as text. It is
	// never followed.
	Location string

	// Started is when Send was called. Duration is until Send returned.
	Started  time.Time
	Duration time.Duration
	Timing   Timing

	// Reused says that the request went out on a kept connection; Resent, that
	// it failed there and was sent a second time on a fresh one.
	Reused bool
	Resent bool

	// Err is the cause of a failure without an answer. It can hold addresses
	// and ports of this network, and what a peer sent: never show it to a
	// tenant. It does not hold the URL.
	Err error
}

// Timing is how long the parts of an attempt took; 0 for a part that did not
// happen or did not finish, such as those before a reused connection. For a
// Resent attempt it tells of the second try.
type Timing struct {
	DNS     time.Duration // name lookup
	Connect time.Duration // TCP connection
	TLS     time.Duration // handshake
	// FirstByte is from the start of the try to the first byte of its answer.
	FirstByte time.Duration
}

// Delivered reports whether the endpoint took the event: any 2xx.
func (r Result) Delivered() bool { return r.Outcome == Delivered }

// Gone reports whether the endpoint answered 410: it wants no more events.
func (r Result) Gone() bool { return r.Answered && r.Status == http.StatusGone }

// OurFault reports whether the failure says nothing about the endpoint: the
// resolver failed, this process is short of resources, or the caller gave up.
// Such an attempt should not count against the subscription. It may go on
// failing for ever all the same (a zone with broken DNSSEC looks like a
// failing resolver), so something must bound it.
func (r Result) OurFault() bool {
	switch r.Outcome {
	case DNSFailure, LocalFailure, Canceled:
		return true
	}
	return false
}

// Text describes the result in words that a tenant may see: the outcome, and
// the status where there is one.
func (r Result) Text() string {
	if r.Outcome != HTTPStatus {
		return r.Outcome.Text()
	}
	text := "the endpoint answered " + strconv.Itoa(r.Status)
	// The reason phrase is the code's own, never the peer's.
	if reason := http.StatusText(r.Status); reason != "" {
		text += " " + reason
	}
	return text
}
