package verify

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postlane-go/postlane/delivery/signing"
)

// DefaultMaxBody is the largest payload that Postlane sends, in bytes.
const DefaultMaxBody = 4 << 20

// Config says what a Verifier accepts. Secrets or Keys is required.
type Config struct {
	// Secrets are the subscription's, as text: "whsec_…" for v1 signatures, "whpk_…" (a
	// public key) for v1a. A request is good if it is signed with one of them, so
	// during a rotation both the old and the new one stand here.
	Secrets []string

	// Keys, if set, returns further keys for a request, for an endpoint that serves
	// several senders or reads its secrets anew. What it returns is tried after
	// Secrets. It is called from many goroutines, before anything is verified. Its
	// error is answered with 503, which asks the sender to come again.
	Keys func(r *http.Request) ([]signing.Key, error)

	// Tolerance is how far a timestamp may be from this machine's clock, before and
	// after. Default: 5 minutes.
	Tolerance time.Duration

	// MaxBody is the largest body that is read, in bytes. Default: DefaultMaxBody.
	MaxBody int64

	// Store remembers what was handled. Default: a new Memory.
	Store Store

	// Scope keeps apart the endpoints that share a Store: an event that several of
	// them subscribed to has one id. Default: "".
	Scope string

	// OnError answers what was refused; Status says with which status. Default: the
	// status, and the error's text, which says what is wrong and holds no secret.
	OnError func(w http.ResponseWriter, r *http.Request, err error)

	// Logger is told when the Store cannot note what was handled.
	// Default: slog.Default().
	Logger *slog.Logger

	// Now is the time that timestamps are compared with. Default: time.Now.
	Now func() time.Time
}

// Verifier verifies requests. It is safe for concurrent use.
type Verifier struct {
	config Config
	keys   []signing.Key
}

var (
	// ErrTooLarge: the body is larger than Config.MaxBody.
	ErrTooLarge = errors.New("verify: the body is too large")
	// ErrBody: the body could not be read to its end.
	ErrBody = errors.New("verify: the body could not be read")
	// ErrHandling: an earlier attempt of the event is being handled at this moment.
	ErrHandling = errors.New("verify: the event is being handled; send it again")
	// ErrUnavailable: Config.Keys or the Store failed.
	ErrUnavailable = errors.New("verify: not now; send it again")
)

// New returns a Verifier, or what is wrong with its configuration. No error repeats a
// secret.
func New(config Config) (*Verifier, error) {
	if len(config.Secrets) == 0 && config.Keys == nil {
		return nil, errors.New("verify: give Secrets, or Keys: without one anybody could send anything")
	}
	v := &Verifier{config: config}
	for i, text := range config.Secrets {
		key, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("verify: secret %d: %w", i, err)
		}
		v.keys = append(v.keys, key)
	}
	c := &v.config
	if c.Tolerance < 0 || c.Tolerance > 0 && c.Tolerance < time.Second {
		return nil, fmt.Errorf("verify: Tolerance is %v; use a second or more, as timestamps are whole seconds", c.Tolerance)
	}
	if c.MaxBody < 0 {
		return nil, fmt.Errorf("verify: MaxBody is %d; use a number of bytes, or 0 for %d", c.MaxBody, DefaultMaxBody)
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.Store == nil {
		c.Store = NewMemory(MemoryConfig{})
	}
	if c.OnError == nil {
		c.OnError = func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), Status(err))
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return v, nil
}

// parse reads a secret or a public key, with the spaces around it that environments and
// files add.
func parse(text string) (signing.Key, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "whpk_") {
		return signing.ParsePublicKey(text)
	}
	return signing.Parse(text)
}

// Read reads the body of a request and verifies its signature and its timestamp. It
// neither asks the Store nor judges the order.
//
// The errors match ErrTooLarge, ErrBody, ErrUnavailable or one of package signing:
// ErrMissingHeader, ErrTimestamp, ErrTooOld, ErrTooNew, ErrNoMatch.
func (v *Verifier) Read(r *http.Request) (*Delivery, error) {
	body, err := v.body(r)
	if err != nil {
		return nil, err
	}
	keys := v.keys
	if v.config.Keys != nil {
		more, err := v.config.Keys(r)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		keys = slices.Concat(keys, more)
	}
	headers := signing.HeadersOf(r.Header)
	if err := signing.Verify(keys, headers, body, v.config.Now(), v.config.Tolerance); err != nil {
		return nil, err
	}
	seconds, err := strconv.ParseInt(headers.Timestamp, 10, 64)
	if err != nil {
		return nil, signing.ErrTimestamp
	}
	d := &Delivery{ID: headers.ID, Timestamp: time.Unix(seconds, 0), Body: body, Scope: v.config.Scope}
	d.describe(r.Header)
	return d, nil
}

// body reads no byte more than it needs to know that a body is too large, and none of
// one that says so itself.
func (v *Verifier) body(r *http.Request) ([]byte, error) {
	limit := v.config.MaxBody
	if r.ContentLength > limit {
		return nil, fmt.Errorf("%w: it has %d bytes, and %d are allowed", ErrTooLarge, r.ContentLength, limit)
	}
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBody, err)
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("%w: it has more than the %d bytes that are allowed", ErrTooLarge, limit)
	}
	return body, nil
}

// Status is the HTTP status that answers an error of this package: 413 for what is too
// large, 401 for a signature or a timestamp that is not good, 409 for what is being
// handled, 503 where the receiver itself is not able to judge, 400 for the rest.
func Status(err error) int {
	switch {
	case errors.Is(err, ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, signing.ErrNoMatch), errors.Is(err, signing.ErrTooOld), errors.Is(err, signing.ErrTooNew):
		return http.StatusUnauthorized
	case errors.Is(err, ErrHandling):
		return http.StatusConflict
	case errors.Is(err, ErrUnavailable), errors.Is(err, signing.ErrNoKeys):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}
