package sender

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/postlane-go/postlane/delivery/guard"
)

// Config configures a Sender. The zero value works. New refuses what cannot
// work: nothing falls back to a laxer setting.
type Config struct {
	// Guard judges URLs and every address dialled.
	// Default: the production policy of package guard.
	Guard *guard.Guard

	// Timeout is for the whole attempt: name lookup, connection, TLS, request,
	// answer and body, and the second try of a Resent one.
	// Default: 10 s. At most 5 min.
	Timeout time.Duration

	// ConnectTimeout is for name lookup and TCP connection together. With
	// several addresses they are tried side by side, not one share each.
	// Default: 5 s, or Timeout if that is shorter. At most Timeout.
	ConnectTimeout time.Duration

	// TLSTimeout is for the TLS handshake.
	// Default: 5 s, or Timeout if that is shorter. At most Timeout.
	TLSTimeout time.Duration

	// BodyTimeout is for reading the answer's body once the headers are in,
	// within Timeout. The verdict stands by then: a dripping body must not
	// hold a worker for long.
	// Default: 1.5 s, or Timeout if that is shorter. At most Timeout.
	BodyTimeout time.Duration

	// MaxBodyBytes is how much of the answer's body Result holds.
	// Default: 4096. At most 1 MiB.
	MaxBodyBytes int

	// MaxHeaderBytes is how much of an answer's headers is read, interim (1xx)
	// answers included, before the attempt fails: it is what ends a flood of
	// those.
	// Default: 65536. At least 4096, at most 1 MiB.
	MaxHeaderBytes int

	// IdleConnsPerHost is how many idle connections are kept per host. As
	// many requests as go to one host at a time is right: with fewer, a busy
	// host gets a new connection, and a TLS handshake, for most requests.
	// Default: 128.
	IdleConnsPerHost int

	// IdleConns is how many idle connections are kept in all; each is a file
	// descriptor.
	// Default: 1024, or IdleConnsPerHost if that is more. At least that.
	IdleConns int

	// IdleTimeout is how long an idle connection is kept. Longer than the
	// endpoints' own limit it only makes more requests meet a closed one.
	// Default: 30 s.
	IdleTimeout time.Duration

	// UserAgent is the User-Agent header.
	// Default: "Postlane".
	UserAgent string

	// Resolver looks names up.
	// Default: net.DefaultResolver.
	Resolver *net.Resolver

	// RootCAs verify endpoints' certificates. Verification cannot be turned
	// off.
	// Default: the system's.
	RootCAs *x509.CertPool
}

const (
	maxTimeout     = 5 * time.Minute
	maxBodyBytes   = 1 << 20
	minHeaderBytes = 4 << 10
	maxHeaderBytes = 1 << 20
)

// withDefaults returns the config with every field set, or all that is wrong
// with it.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("sender: "+format, args...)) }

	if c.Guard == nil {
		g, err := guard.New(guard.Policy{})
		if err != nil {
			return c, err
		}
		c.Guard = g
	}
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	if c.Timeout < 0 || c.Timeout > maxTimeout {
		wrong("Timeout is %v; choose up to %v", c.Timeout, maxTimeout)
	}
	for _, part := range []struct {
		name    string
		value   *time.Duration
		preset  time.Duration
		limited bool
	}{
		{"ConnectTimeout", &c.ConnectTimeout, 5 * time.Second, true},
		{"TLSTimeout", &c.TLSTimeout, 5 * time.Second, true},
		{"BodyTimeout", &c.BodyTimeout, 1500 * time.Millisecond, true},
		{"IdleTimeout", &c.IdleTimeout, 30 * time.Second, false},
	} {
		if *part.value == 0 {
			*part.value = part.preset
			if part.limited {
				*part.value = min(part.preset, c.Timeout)
			}
		}
		if *part.value < 0 {
			wrong("%s is %v; choose a positive duration", part.name, *part.value)
		}
		if part.limited && *part.value > c.Timeout {
			wrong("%s is %v, longer than Timeout (%v), and would never end anything", part.name, *part.value, c.Timeout)
		}
	}
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, 4096)
	if c.MaxBodyBytes < 0 || c.MaxBodyBytes > maxBodyBytes {
		wrong("MaxBodyBytes is %d; choose 1 to %d", c.MaxBodyBytes, maxBodyBytes)
	}
	c.MaxHeaderBytes = cmp.Or(c.MaxHeaderBytes, 64<<10)
	if c.MaxHeaderBytes < minHeaderBytes || c.MaxHeaderBytes > maxHeaderBytes {
		wrong("MaxHeaderBytes is %d; choose %d to %d", c.MaxHeaderBytes, minHeaderBytes, maxHeaderBytes)
	}
	c.IdleConnsPerHost = cmp.Or(c.IdleConnsPerHost, 128)
	c.IdleConns = cmp.Or(c.IdleConns, max(1024, c.IdleConnsPerHost))
	if c.IdleConnsPerHost < 0 || c.IdleConns < c.IdleConnsPerHost {
		wrong("IdleConnsPerHost is %d and IdleConns %d; choose positive numbers, the second no smaller", c.IdleConnsPerHost, c.IdleConns)
	}
	c.UserAgent = cmp.Or(c.UserAgent, "Postlane")
	if !httpguts.ValidHeaderFieldValue(c.UserAgent) {
		wrong("UserAgent holds characters that a header cannot carry")
	}
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	return c, errors.Join(errs...)
}

// transport returns a Transport of its own: a clone of http.DefaultTransport
// would bring the environment's proxy and HTTP/2 along.
func (c Config) transport(d *dialer, keepAlive bool) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:       nil,
		DialContext: d.DialContext,
		// DialTLSContext stays nil: it would replace DialContext, and with it
		// the guard, for https.
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			RootCAs:            c.RootCAs,
			ClientSessionCache: tls.NewLRUClientSessionCache(1024),
		},
		TLSHandshakeTimeout:    c.TLSTimeout,
		DisableKeepAlives:      !keepAlive,
		DisableCompression:     true,
		MaxIdleConns:           c.IdleConns,
		MaxIdleConnsPerHost:    c.IdleConnsPerHost,
		IdleConnTimeout:        c.IdleTimeout,
		MaxResponseHeaderBytes: int64(c.MaxHeaderBytes),
		Protocols:              protocols,
	}
}
