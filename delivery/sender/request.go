package sender

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/postlane-go/postlane/delivery/signing"
)

// Names of the headers that a receiver may rely on, beside those of package
// signing, as keys of an http.Header.
const (
	HeaderEventType  = "Postlane-Event-Type"
	HeaderAttempt    = "Postlane-Attempt"
	HeaderAsset      = "Postlane-Asset"
	HeaderStreamSeq  = "Postlane-Stream-Seq"
	HeaderStreamPrev = "Postlane-Stream-Prev"
)

// Request is one attempt of one delivery.
type Request struct {
	// URL is the endpoint. It is checked again by the guard: it may have been
	// stored under another policy.
	URL string

	// EventID becomes webhook-id, the same for all attempts: the receiver
	// recognises a repeated event by it. Visible ASCII without a full stop.
	EventID string
	// EventType and Asset are any text; empty ones leave their header out. See
	// EncodeText for what they look like on the wire.
	EventType string
	Asset     string

	// Attempt is the number of this attempt, from 1.
	Attempt int

	// StreamSeq is the sequence number of this delivery, from 1, and
	// StreamPrev that of the one before it in its stream, 0 if it is the
	// first. With StreamSeq 0 both headers are left out; otherwise both are
	// sent, a StreamPrev of 0 too, so that a receiver can tell the first of a
	// stream from one whose header was lost.
	StreamSeq  int64
	StreamPrev int64

	// ContentType is of Body. Default: "application/json".
	ContentType string
	// Body is sent byte for byte. It may still be read shortly after Send has
	// returned, so it must not be changed.
	Body []byte

	// Secrets sign with v1, in this order: the current one first, then the one
	// it replaced while that is still valid. Keys sign with v1a. At least one
	// of either is needed: nothing is sent unsigned.
	Secrets []signing.Secret
	Keys    []signing.PrivateKey

	// Traceparent is the W3C trace context that the event comes from, "" where it
	// comes from none. It is for a Sender that traces (package otelpostlane): this
	// one does not send it.
	Traceparent string

	// Header holds the subscription's own headers. Names that CheckHeader
	// calls reserved are left out here, so that one that got past the API
	// replaces nothing; anything else it refuses fails the attempt.
	Header http.Header
}

// newRequest builds the HTTP request, with the timestamp of this moment.
func (s *Sender) newRequest(ctx context.Context, r *Request, u *url.URL) (*http.Request, error) {
	header, err := s.header(r, s.now())
	if err != nil {
		return nil, err
	}
	req := (&http.Request{
		Method:        http.MethodPost,
		URL:           u,
		Host:          u.Host,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		Body:          http.NoBody,
		ContentLength: int64(len(r.Body)),
		// GetBody stays nil: with it the Transport may send the request again
		// by itself, unseen.
	}).WithContext(ctx)
	if len(r.Body) > 0 {
		req.Body = io.NopCloser(bytes.NewReader(r.Body))
	}
	return req, nil
}

// header returns all header fields of the attempt.
func (s *Sender) header(r *Request, now time.Time) (http.Header, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	contentType := r.ContentType
	if contentType == "" {
		contentType = "application/json"
	}
	timestamp := now.Unix()
	var buf [512]byte
	signature := signing.Sign(buf[:0], r.EventID, timestamp, r.Body, r.Secrets...)
	for _, key := range r.Keys {
		signature = key.Sign(signature, r.EventID, timestamp, r.Body)
	}

	h := make(http.Header, 10+len(r.Header))
	values := make([]string, 0, 10) // one allocation for all values
	set := func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	set("Content-Type", contentType)
	set("User-Agent", s.config.UserAgent)
	set(signing.HeaderID, r.EventID)
	set(signing.HeaderTimestamp, strconv.FormatInt(timestamp, 10))
	set(signing.HeaderSignature, string(signature))
	set(HeaderAttempt, strconv.Itoa(r.Attempt))
	if r.EventType != "" {
		set(HeaderEventType, EncodeText(r.EventType))
	}
	if r.Asset != "" {
		set(HeaderAsset, EncodeText(r.Asset))
	}
	if r.StreamSeq != 0 {
		set(HeaderStreamSeq, strconv.FormatInt(r.StreamSeq, 10))
		set(HeaderStreamPrev, strconv.FormatInt(r.StreamPrev, 10))
	}
	for name, list := range r.Header {
		if ReservedHeader(name) {
			continue
		}
		for _, value := range list {
			if err := CheckHeader(name, value); err != nil {
				return nil, err
			}
		}
		key := http.CanonicalHeaderKey(name)
		h[key] = append(h[key], list...)
	}
	return h, nil
}

var errUnsigned = errors.New("sender: the request has no secret and no key to sign with")

func (r *Request) check() error {
	if len(r.Secrets)+len(r.Keys) == 0 {
		return errUnsigned
	}
	for _, secret := range r.Secrets {
		if secret.IsZero() {
			return errUnsigned
		}
	}
	for _, key := range r.Keys {
		if key.IsZero() {
			return errUnsigned
		}
	}
	if r.EventID == "" || strings.ContainsFunc(r.EventID, func(c rune) bool { return c <= ' ' || c > '~' || c == '.' }) {
		return fmt.Errorf("sender: event id %q cannot be a webhook-id; use visible ASCII without a full stop", r.EventID)
	}
	if r.Attempt < 1 {
		return fmt.Errorf("sender: attempt %d; they are counted from 1", r.Attempt)
	}
	if r.StreamSeq < 0 || r.StreamPrev < 0 || r.StreamSeq == 0 && r.StreamPrev != 0 {
		return fmt.Errorf("sender: stream position %d after %d is not one", r.StreamSeq, r.StreamPrev)
	}
	if !httpguts.ValidHeaderFieldValue(r.ContentType) {
		return errors.New("sender: the content type holds characters that a header cannot carry")
	}
	return nil
}
