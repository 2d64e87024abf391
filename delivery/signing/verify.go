package signing

import (
	"crypto/ed25519"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Names of the three headers, in the form that http.Header keys have.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

const (
	// DefaultTolerance is how far a timestamp may be from the receiver's
	// clock, either way: what the official libraries use.
	DefaultTolerance = 5 * time.Minute

	// MaxSignatures is how many signatures of a header Verify looks at. A
	// rotation has two or three; checking Ed25519 signatures is work that a
	// stranger could otherwise order by the thousand.
	MaxSignatures = 16
)

// Errors of Verify. A receiver answers each of them with a 4xx status.
var (
	// ErrMissingHeader: one of the three headers is absent or empty.
	ErrMissingHeader = errors.New("signing: a webhook-id, webhook-timestamp or webhook-signature header is missing")
	// ErrTimestamp: the timestamp is not a decimal number of seconds.
	ErrTimestamp = errors.New("signing: webhook-timestamp is not a decimal number of Unix seconds")
	// ErrTooOld and ErrTooNew: the timestamp is outside the tolerance. Either
	// the request is a replay, or a clock is wrong.
	ErrTooOld = errors.New("signing: webhook-timestamp is too old")
	ErrTooNew = errors.New("signing: webhook-timestamp is in the future")
	// ErrNoMatch: no signature belongs to any of the keys. Wrong secret, or
	// the body is not the bytes that were sent.
	ErrNoMatch = errors.New("signing: no signature in webhook-signature matches")
	// ErrNoKeys: Verify was given no key, or a zero one.
	ErrNoKeys = errors.New("signing: no key to verify with")
)

// Key verifies signatures: a Secret or a PublicKey.
type Key interface {
	IsZero() bool
	// matcher returns the version that the key speaks, and a function that
	// judges one signature of that version.
	matcher(h Headers, timestamp int64, body []byte) (version string, match func(signature string) bool)
}

// Headers are the values of the three headers of a request.
type Headers struct {
	ID        string
	Timestamp string
	Signature string
}

// HeadersOf takes the three values out of a request's header.
func HeadersOf(h http.Header) Headers {
	return Headers{
		ID:        h.Get(HeaderID),
		Timestamp: h.Get(HeaderTimestamp),
		// Someone on the way may have split the value over several lines.
		Signature: strings.Join(h.Values(HeaderSignature), " "),
	}
}

// Verify returns nil if a signature of the request belongs to one of the keys
// (the current one and, during a rotation, the one before) and its timestamp
// is within tolerance of now, before or after. A tolerance of 0 means
// DefaultTolerance. The body must be the raw bytes received. Versions that no
// key speaks are skipped. Comparisons take the same time whatever differs.
//
// The errors are the Err variables of this package, wrapped with what helps to
// find the cause.
func Verify(keys []Key, h Headers, body []byte, now time.Time, tolerance time.Duration) error {
	if tolerance < 0 {
		return fmt.Errorf("signing: tolerance %v is negative", tolerance)
	}
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	if len(keys) == 0 {
		return ErrNoKeys
	}
	if h.ID == "" || h.Timestamp == "" || h.Signature == "" {
		return ErrMissingHeader
	}
	timestamp, err := parseTimestamp(h.Timestamp)
	if err != nil {
		return err
	}
	if err := checkTimestamp(timestamp, now.Unix(), tolerance); err != nil {
		return err
	}
	for _, key := range keys {
		if key == nil || key.IsZero() {
			return ErrNoKeys
		}
		version, match := key.matcher(h, timestamp, body)
		if anySignature(h.Signature, version, match) {
			return nil
		}
	}
	return ErrNoMatch
}

// parseTimestamp takes digits only: ParseInt alone would take a sign, and the
// signed content is rebuilt from the number.
func parseTimestamp(text string) (int64, error) {
	if strings.Trim(text, "0123456789") != "" || len(text) > 1 && text[0] == '0' {
		return 0, ErrTimestamp
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, ErrTimestamp
	}
	return n, nil
}

// checkTimestamp subtracts in uint64, where the distance of any two int64
// values fits.
func checkTimestamp(timestamp, now int64, tolerance time.Duration) error {
	limit := uint64(tolerance / time.Second)
	if timestamp > now {
		if ahead := uint64(timestamp) - uint64(now); ahead > limit {
			return fmt.Errorf("%w by %d s; are both clocks right, and is it in seconds?", ErrTooNew, ahead)
		}
		return nil
	}
	if behind := uint64(now) - uint64(timestamp); behind > limit {
		return fmt.Errorf("%w by %d s; is this a replay, and are both clocks right?", ErrTooOld, behind)
	}
	return nil
}

func anySignature(header, version string, match func(string) bool) bool {
	seen := 0
	for token := range strings.SplitSeq(header, " ") {
		if token == "" {
			continue
		}
		if seen++; seen > MaxSignatures {
			return false
		}
		v, signature, ok := strings.Cut(token, ",")
		if ok && v == version && match(signature) {
			return true
		}
	}
	return false
}

func (s Secret) matcher(h Headers, timestamp int64, body []byte) (string, func(string) bool) {
	want := s.key.appendSignature(make([]byte, 0, 64), h.ID, timestamp, body)[len("v1,"):]
	return "v1", func(signature string) bool {
		return subtle.ConstantTimeCompare(want, []byte(signature)) == 1
	}
}

func (k PublicKey) matcher(h Headers, timestamp int64, body []byte) (string, func(string) bool) {
	return "v1a", func(signature string) (ok bool) {
		sig, err := base64.StdEncoding.Strict().DecodeString(signature)
		if err != nil || len(sig) != ed25519.SignatureSize {
			return false
		}
		withContent(h.ID, timestamp, body, func(content []byte) {
			ok = ed25519.Verify(k.key, content, sig)
		})
		return ok
	}
}
