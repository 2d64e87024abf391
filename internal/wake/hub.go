package wake

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Hub listens on one connection for all of a process. Its methods may be
// called from any goroutine.
type Hub struct {
	config    Config
	listening atomic.Bool

	mu          sync.Mutex
	subscribers map[*subscriber]struct{}
}

type subscriber struct {
	word    Word
	signals chan struct{}
}

// New returns a Hub that listens once it is Run.
func New(config Config) (*Hub, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Hub{config: config, subscribers: map[*subscriber]struct{}{}}, nil
}

// Subscribe returns a channel that gets a signal after a notification of word
// and after every connect. Signals that are not read at once become one. The
// channel is never closed; cancel ends the subscription.
//
// A nil Hub gives a channel that stays silent: its consumer polls.
func (h *Hub) Subscribe(word Word) (signals <-chan struct{}, cancel func()) {
	s := &subscriber{word: word, signals: make(chan struct{}, 1)}
	if h == nil {
		return s.signals, func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribers[s] = struct{}{}
	return s.signals, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subscribers, s)
	}
}

// signal wakes the subscribers of word, all of them where it is empty. It
// never blocks.
func (h *Hub) signal(word Word) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subscribers {
		if word != "" && s.word != word {
			continue
		}
		select {
		case s.signals <- struct{}{}:
		default: // one is waiting already
		}
	}
}

// Listening reports whether notifications arrive at present. While it is
// false, consumers live by polling alone.
func (h *Hub) Listening() bool { return h != nil && h.listening.Load() }

// Run listens until ctx ends, and connects again whenever the connection is
// lost. It returns when its connection is closed. Run it once.
func (h *Hub) Run(ctx context.Context) {
	reported := "" // the failure that the log has last heard of
	for try := 0; ; try++ {
		began := time.Now()
		err := h.listen(ctx, func() {
			if reported != "" {
				h.config.Logger.InfoContext(ctx, "wake: listening again")
			}
			reported = ""
			h.listening.Store(true)
			h.signal("")
		})
		h.listening.Store(false)
		if ctx.Err() != nil {
			return
		}
		if kind := kindOf(err); kind != reported {
			h.config.Logger.WarnContext(ctx, "wake: not listening; work is found by polling until this is over", "error", err)
			reported = kind
		}
		if time.Since(began) > h.config.Heartbeat+h.config.Deadline {
			try = 0 // it had lasted
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(h.config.backoff(try)):
		}
	}
}

// backoff returns the pause after the try-th failure in a row, counted from 0:
// between half and all of Backoff, doubled each time.
func (c Config) backoff(try int) time.Duration {
	pause := c.MaxBackoff
	if try < 30 {
		pause = min(c.Backoff<<try, c.MaxBackoff)
	}
	return pause/2 + rand.N(pause/2+1)
}

// kindOf tells failures apart that an operator would act upon differently.
func kindOf(err error) string {
	switch {
	case errors.Is(err, ErrStandby):
		return "standby"
	case errors.Is(err, ErrPooled):
		return "pooled"
	default:
		return "lost"
	}
}
