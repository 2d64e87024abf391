package keys

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Everywhere is where the operator's key of the environment is: in no database, and good
// for all of them.
const Everywhere = -1

const (
	// placeFor is for how long it is remembered in which database a key is. One that was
	// moved with its tenant is looked for again after that.
	placeFor = time.Minute
	// lookupTimeout is how long a database may take to tell whether it has a key.
	lookupTimeout = 3 * time.Second
)

// Locator finds in which of several databases a key is, and so its tenant. It decides
// nothing else: whether the key is good is that database's to say, at each request. It is
// safe for concurrent use.
type Locator struct {
	stores   []*Store
	attempts *Attempts

	mu     sync.Mutex
	places map[[sha256.Size]byte]place
}

// place is where a key was found.
type place struct {
	database int
	at       time.Time
}

// NewLocator returns the locator of the stores of one process, which have one operator's
// key in common.
func NewLocator(stores []*Store) *Locator {
	return &Locator{stores: stores, attempts: NewAttempts(nil), places: map[[sha256.Size]byte]place{}}
}

// Find returns the index of the store that has the key of a text, for somebody at an
// address (net/http's RemoteAddr), or Everywhere. The error is ErrUnknown if none has it,
// a *TooManyError, or another one where it might be in a database that does not answer.
func (l *Locator) Find(ctx context.Context, remote, text string) (int, error) {
	hash := sha256.Sum256([]byte(text))
	if operator := l.stores[0].operator; operator != nil && subtle.ConstantTimeCompare(hash[:], operator[:]) == 1 {
		return Everywhere, nil
	}
	if !wellFormed(text) {
		return 0, ErrUnknown
	}
	if i, ok := l.remembered(hash); ok {
		return i, nil
	}
	from := Place(remote)
	if wait := l.attempts.wait(from, hash); wait > 0 {
		return 0, &TooManyError{wait}
	}
	i, err := l.search(ctx, hash[:])
	switch {
	case err == nil:
		l.attempts.succeeded(hash)
		l.remember(hash, i)
	case errors.Is(err, ErrUnknown):
		l.attempts.failed(from, hash)
	}
	return i, err
}

// search asks all databases at once, and waits for no other once one has the key.
func (l *Locator) search(ctx context.Context, hash []byte) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	type answer struct {
		database int
		has      bool
		err      error
	}
	answers := make(chan answer, len(l.stores))
	for i, s := range l.stores {
		go func() {
			has, err := s.has(ctx, hash)
			answers <- answer{i, has, err}
		}()
	}
	var away error
	for range l.stores {
		a := <-answers
		if a.has {
			return a.database, nil
		}
		away = errors.Join(away, a.err)
	}
	if away != nil {
		return 0, fmt.Errorf("keys: find the database of a key: %w", away)
	}
	return 0, ErrUnknown
}

func (l *Locator) remembered(hash [sha256.Size]byte) (int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.places[hash]
	return p.database, ok && time.Since(p.at) < placeFor
}

func (l *Locator) remember(hash [sha256.Size]byte, database int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.places) >= maxRemembered {
		clear(l.places)
	}
	l.places[hash] = place{database, time.Now()}
}
