package receiver

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"
)

// Drop as a status closes the connection without an answer.
const Drop = -1

// Behaviour is how a path answers: first Hold, then Delay, then a status. The
// zero value answers 200 at once. A refused request (a wrong signature, say)
// is answered as such at once, whatever the Behaviour.
type Behaviour struct {
	// Status of the answer, 200 to 999, or Drop. Default: 200.
	Status int

	// FailFirst is how many requests of the path are answered with FailStatus
	// before Status applies, counted from the moment the Behaviour is set.
	// Default: 0.
	FailFirst int

	// FailStatus is the status of those, 200 to 999, or Drop. Default: 500.
	FailStatus int

	// Answer, if set, gives the status in place of Status, request by request;
	// 0 leaves it to Status. It is called from many goroutines at once.
	// Default: none.
	Answer func(Arrival) int

	// Header is added to every answer, such as Retry-After. Default: none.
	Header http.Header

	// Delay before the answer. Default: 0.
	Delay time.Duration

	// Jitter adds a random time between 0 and itself to Delay. Default: 0.
	Jitter time.Duration

	// Hold, if set, keeps every request open until it is closed. A sender that
	// hangs up, and a Serve that stops, end it too. Default: none.
	Hold <-chan struct{}
}

func (b Behaviour) check() error {
	for name, status := range map[string]int{"Status": b.Status, "FailStatus": b.FailStatus} {
		if status != 0 && status != Drop && (status < 200 || status > 999) {
			return fmt.Errorf("receiver: Behaviour.%s is %d, must be 200 to 999 or Drop", name, status)
		}
	}
	if b.FailFirst < 0 || b.Delay < 0 || b.Jitter < 0 {
		return fmt.Errorf("receiver: Behaviour.FailFirst, Delay and Jitter must not be negative")
	}
	return nil
}

// script is a Behaviour at work on one path.
type script struct {
	Behaviour
	common   *Behaviour   // the Behaviour of AnyPath that it was made from, nil if the path has its own
	failures atomic.Int64 // of FailFirst, those left
}

func newScript(b Behaviour, common *Behaviour) *script {
	s := &script{Behaviour: b, common: common}
	s.Status = cmp.Or(b.Status, http.StatusOK)
	s.FailStatus = cmp.Or(b.FailStatus, http.StatusInternalServerError)
	s.Header = make(http.Header, len(b.Header))
	for name, values := range b.Header {
		for _, value := range values {
			s.Header.Add(name, value)
		}
	}
	s.failures.Store(int64(b.FailFirst))
	return s
}

// status decides the answer to one request.
func (s *script) status(a Arrival) int {
	if s.failures.Load() > 0 && s.failures.Add(-1) >= 0 {
		return s.FailStatus
	}
	if s.Answer != nil {
		return cmp.Or(s.Answer(a), s.Status)
	}
	return s.Status
}

// wait holds and delays one request. It reports whether the request is still
// to be answered as decided: false once its sender hung up or Serve stops.
func (s *script) wait(ctx context.Context) bool {
	if s.Hold != nil {
		select {
		case <-s.Hold:
		case <-ctx.Done():
			return false
		}
	}
	d := s.Delay
	if s.Jitter > 0 {
		d += rand.N(s.Jitter)
	}
	if d == 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *script) slow() bool { return s.Hold != nil || s.Delay > 0 || s.Jitter > 0 }
