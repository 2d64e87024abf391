package keys

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// WrongKeys is how many wrong keys an address may try at once; wrongKeyEvery is in
	// what time it may try one more. All addresses together may try ten times that.
	WrongKeys     = 10
	wrongKeyEvery = 6 * time.Second
	// maxRemembered bounds how many addresses are remembered, and how many good keys;
	// all are forgotten then.
	maxRemembered = 10_000
	// goodFor is for how long a key that was right need not wait for others' wrong ones.
	goodFor = 10 * time.Minute
)

// TooManyError means that too many wrong keys came from an address, or from everywhere.
type TooManyError struct{ Wait time.Duration }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("keys: too many wrong keys; try again in %v", e.Wait.Round(time.Second))
}

// Attempts limits how many wrong keys are looked up. A key cannot be guessed anyway; this
// keeps the guessing from costing anything. It is safe for concurrent use.
//
// Behind a proxy everybody has one address, so a key that was right a moment ago is looked
// up whatever others try. Not so the one of the environment: a person may have chosen it.
type Attempts struct {
	store *Store
	mu    sync.Mutex
	all   *rate.Limiter
	from  map[string]*rate.Limiter
	good  map[[sha256.Size]byte]time.Time
}

// NewAttempts returns an Attempts on a store with nothing counted.
func NewAttempts(store *Store) *Attempts {
	return &Attempts{
		store: store, all: rate.NewLimiter(10*rate.Every(wrongKeyEvery), 10*WrongKeys),
		from: map[string]*rate.Limiter{}, good: map[[sha256.Size]byte]time.Time{},
	}
}

// Find is Store.Find for somebody at an address (net/http's RemoteAddr), or a
// *TooManyError.
func (a *Attempts) Find(ctx context.Context, remote, text string) (*Caller, error) {
	from, hash := Place(remote), sha256.Sum256([]byte(text))
	if wait := a.wait(from, hash); wait > 0 {
		return nil, &TooManyError{wait}
	}
	who, err := a.store.Find(ctx, text)
	switch {
	case errors.Is(err, ErrUnknown):
		a.failed(from, hash)
	case err == nil && who.ID != operatorID:
		a.succeeded(hash)
	}
	return who, err
}

// wait is for how long an address has to wait before it may try a key.
func (a *Attempts) wait(from string, hash [sha256.Size]byte) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, ok := a.good[hash]; ok && time.Since(at) < goodFor {
		return 0
	}
	if l := a.from[from]; l != nil && l.Tokens() < 1 {
		return time.Duration((1 - l.Tokens()) * float64(wrongKeyEvery))
	}
	if a.all.Tokens() < 1 {
		return wrongKeyEvery / 10
	}
	return 0
}

func (a *Attempts) failed(from string, hash [sha256.Size]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.good, hash) // revoked
	l := a.from[from]
	if l == nil {
		if len(a.from) >= maxRemembered {
			clear(a.from)
		}
		l = rate.NewLimiter(rate.Every(wrongKeyEvery), WrongKeys)
		a.from[from] = l
	}
	l.Allow()
	a.all.Allow()
}

func (a *Attempts) succeeded(hash [sha256.Size]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.good) >= maxRemembered {
		clear(a.good)
	}
	a.good[hash] = time.Now()
}

// Place is where a request comes from, for counting: of IPv6 a network is one place.
func Place(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a = a.Unmap(); a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}
