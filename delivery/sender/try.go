package sender

import (
	"context"
	"crypto/tls"
	"net/http/httptrace"
	"sync"
	"time"
)

// phase is how far a try has come.
type phase int

const (
	waiting phase = iota // for a connection, from the pool or new
	resolving
	connecting
	connected
	handshaking
	sending // a connection is ours; until the first byte of the answer
	answering
)

// try follows one HTTP request on its way. Its methods may be called from the
// Transport's goroutines, after Send has returned too: the dial of a try that
// was given up goes on.
type try struct {
	started  time.Time
	deadline time.Duration // of a connection, see gotConn

	mu     sync.Mutex
	phase  phase
	since  time.Time // start of the phase
	timing Timing
	reused bool
}

type tryKey struct{}

// tryOf returns the context's try, or one that nobody looks at.
func tryOf(ctx context.Context) *try {
	if t, ok := ctx.Value(tryKey{}).(*try); ok {
		return t
	}
	return new(try)
}

func newTry(connDeadline time.Duration) *try {
	now := time.Now()
	return &try{started: now, since: now, deadline: connDeadline}
}

// context returns ctx with the try in it, for the dialer and the Transport.
func (t *try) context(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, tryKey{}, t)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeStart:    func() { t.enter(handshaking) },
		TLSHandshakeDone:     t.tlsDone,
		GotConn:              t.gotConn,
		GotFirstResponseByte: func() { t.enter(answering) },
	})
}

// enter moves on to a later phase, and books the time of the one that was
// completed. A try that got a connection from the pool while it dialled is past
// what its dial still reports.
func (t *try) enter(p phase) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if p <= t.phase {
		return
	}
	switch took := now.Sub(t.since); {
	case t.phase == resolving && p == connecting:
		t.timing.DNS = took
	case t.phase == connecting && p == connected:
		t.timing.Connect = took
	case p == answering:
		t.timing.FirstByte = now.Sub(t.started)
	}
	t.phase, t.since = p, now
}

func (t *try) tlsDone(_ tls.ConnectionState, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && t.phase == handshaking {
		t.timing.TLS = time.Since(t.since)
	}
}

func (t *try) gotConn(info httptrace.GotConnInfo) {
	t.enter(sending)
	t.mu.Lock()
	t.reused = info.Reused
	t.mu.Unlock()
	// A backstop for what neither a context nor the Transport interrupts: the
	// body of a 101 answer is the bare connection. Far enough away never to
	// end an attempt or an idle connection before its own limit does.
	// It fails only for a closed connection, which fails the request too.
	_ = info.Conn.SetDeadline(time.Now().Add(t.deadline))
}

// snapshot is a try as it stands when its request has ended.
type snapshot struct {
	phase  phase
	timing Timing
	reused bool
}

func (t *try) snapshot() snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return snapshot{t.phase, t.timing, t.reused}
}

// stale reports whether a failure may only mean that a kept connection had
// been closed by the peer: it was reused, and not a byte came back.
func (s snapshot) stale() bool { return s.reused && s.phase == sending }
