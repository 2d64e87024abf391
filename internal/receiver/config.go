package receiver

import (
	"cmp"
	"io"
	"time"
)

// AnyPath stands for every path that was given nothing of its own.
const AnyPath = ""

// Config is how a receiver judges and answers. The zero value works: it judges
// everything but signatures, for which it would need to know the secrets, and
// answers 200 at once.
type Config struct {
	// Secrets are the signing keys of each path, as SetSecrets takes them.
	// Default: none, and every request counts as unverified.
	Secrets map[string][]string

	// Behaviour is how requests are answered until Behave says otherwise.
	// Default: 200 at once.
	Behaviour Behaviour

	// Light counts requests and judges nothing: for the raw rate of a sender.
	// Only the Behaviour of AnyPath applies. Default: false.
	Light bool

	// MidStream takes the first arrival of a stream as the stream's beginning,
	// whatever its prev says: for a receiver that starts when its streams have
	// long begun. Default: false, and such an arrival is a gap.
	MidStream bool

	// Observe is called with every request that was not refused, once it is
	// judged and before it is answered, on the request's goroutine. The body is
	// valid only during the call. Default: none.
	Observe func(a Arrival, body []byte)

	// Log gets one line per answered request: never a payload, never a secret.
	// Writes are serialised. Default: none.
	Log io.Writer

	// Now is the clock that timestamps are judged by. Default: time.Now.
	Now func() time.Time

	// Examples is how many problems of each kind a Verdict spells out.
	// Default: 10.
	Examples int

	// MaxBody bounds a request's body in bytes; a longer one is answered 413.
	// Default: 4 MiB.
	MaxBody int64

	// MaxHeader bounds a request's header in bytes. Default: 64 KiB.
	MaxHeader int

	// ReadHeaderTimeout bounds the arrival of a header, so that a silent
	// connection cannot stay. Default: 10 s.
	ReadHeaderTimeout time.Duration

	// ReadTimeout bounds the arrival of header and body together, so that a
	// dripped body cannot keep its stream open. Default: 30 s.
	ReadTimeout time.Duration

	// WriteTimeout bounds the writing of an answer, not the delay before it.
	// Default: 30 s.
	WriteTimeout time.Duration

	// IdleTimeout is how long a connection may wait for its next request.
	// Default: 2 min.
	IdleTimeout time.Duration

	// Grace is how long Serve waits for open requests when it stops, before it
	// closes their connections. Default: 5 s.
	Grace time.Duration
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Examples = cmp.Or(c.Examples, 10)
	c.MaxBody = cmp.Or(c.MaxBody, 4<<20)
	c.MaxHeader = cmp.Or(c.MaxHeader, 64<<10)
	c.ReadHeaderTimeout = cmp.Or(c.ReadHeaderTimeout, 10*time.Second)
	c.ReadTimeout = cmp.Or(c.ReadTimeout, 30*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 2*time.Minute)
	c.Grace = cmp.Or(c.Grace, 5*time.Second)
	return c
}
