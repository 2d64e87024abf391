package sender

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
)

// Sender makes attempts. It is safe for concurrent use; create one per
// process, since it holds the connections that are kept between attempts.
type Sender struct {
	config Config
	pooled *http.Transport
	fresh  *http.Transport // never reuses: for the second try of an attempt
	now    func() time.Time
}

// New returns a Sender, or all that is wrong with the config.
func New(c Config) (*Sender, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	d := newDialer(c)
	return &Sender{
		config: c,
		pooled: c.transport(d, true),
		fresh:  c.transport(d, false),
		now:    time.Now,
	}, nil
}

// Close closes the idle connections. Attempts under way go on, and their
// connections close when they are done. The Sender must not be used after.
func (s *Sender) Close() {
	s.pooled.CloseIdleConnections()
	s.fresh.CloseIdleConnections()
}

// errAttemptTimeout is the cause that tells the attempt's own deadline from
// that of the caller's context.
var errAttemptTimeout = errors.New("sender: no answer within Timeout")

// Send makes the attempt and returns what became of it, within Config.Timeout
// or when ctx ends. The event may have reached the endpoint whatever the
// outcome, except after Blocked, InvalidRequest and the DNS, connect and TLS
// ones.
func (s *Sender) Send(ctx context.Context, r Request) Result {
	result := Result{Started: s.now()}
	begin := time.Now()
	s.send(ctx, &r, &result)
	result.Duration = time.Since(begin)
	return result
}

func (s *Sender) send(parent context.Context, r *Request, result *Result) {
	u, err := s.config.Guard.CheckURL(r.URL)
	if err != nil {
		result.Outcome, result.Err = Blocked, err
		return
	}
	ctx, cancel := context.WithTimeoutCause(parent, s.config.Timeout, errAttemptTimeout)
	defer cancel()

	resp, seen, err := s.roundTrip(ctx, s.pooled, r, u) //nolint:bodyclose // read closes it
	if err != nil && seen.stale() && ctx.Err() == nil {
		result.Resent = true
		resp, seen, err = s.roundTrip(ctx, s.fresh, r, u) //nolint:bodyclose // as above
	}
	result.Reused, result.Timing = seen.reused || result.Resent, seen.timing
	if err != nil {
		result.Outcome, result.Err = classify(ctx, err, seen.phase), err
		return
	}
	s.read(resp, result, cancel)
}

// roundTrip makes one HTTP request. RoundTrip, unlike Client.Do, returns the
// status of a redirect whose Location cannot be parsed, and follows nothing.
func (s *Sender) roundTrip(ctx context.Context, t *http.Transport, r *Request, u *url.URL) (*http.Response, snapshot, error) {
	try := newTry(s.config.Timeout + s.config.IdleTimeout + time.Minute)
	req, err := s.newRequest(try.context(ctx), r, u)
	if err != nil {
		return nil, snapshot{}, &invalidRequest{err}
	}
	resp, err := t.RoundTrip(req)
	return resp, try.snapshot(), err
}

// invalidRequest marks an error of newRequest.
type invalidRequest struct{ error }

func (e *invalidRequest) Unwrap() error { return e.error }
