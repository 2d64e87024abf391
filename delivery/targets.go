package delivery

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/postlane-go/postlane/delivery/signing"
)

// target is what a sender needs to know of a subscription.
type target struct {
	revision int64
	url      string
	secrets  []signing.Secret
	keys     []signing.PrivateKey
	header   http.Header
	// thin: it gets no payloads.
	thin bool
	// until is when it has to be read again: a secret stops signing then.
	until time.Time
	// err is why nothing can be sent to it, on this side.
	err error
}

// maxTargets bounds what is kept; it is all forgotten then.
const maxTargets = 50_000

// targets keeps what was read of subscriptions until a claim names a newer revision, and
// which of them this dispatcher found away.
type targets struct {
	store    *Store
	openings openings
	mu       sync.Mutex
	known    map[SubscriptionID]*target
}

func newTargets(store *Store) *targets {
	return &targets{store: store, known: map[SubscriptionID]*target{}}
}

// of returns the targets of claims, parallel to them, reading those that are not known
// or no longer current.
func (t *targets) of(ctx context.Context, claims []Claim) ([]*target, error) {
	list := make([]*target, len(claims))
	var missing []int64
	asked := map[SubscriptionID]bool{}
	now := time.Now()
	t.mu.Lock()
	for i := range claims {
		c := &claims[i]
		known := t.known[c.Subscription]
		if known != nil && known.revision >= c.Revision && (known.until.IsZero() || now.Before(known.until)) {
			list[i] = known
		} else if !asked[c.Subscription] {
			asked[c.Subscription] = true
			missing = append(missing, int64(c.Subscription))
		}
	}
	t.mu.Unlock()
	if len(missing) == 0 {
		return list, nil
	}
	read, err := t.read(ctx, missing)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.known)+len(read) > maxTargets {
		clear(t.known)
	}
	maps.Copy(t.known, read)
	for i := range claims {
		if list[i] == nil {
			list[i] = read[claims[i].Subscription]
		}
		if list[i] == nil {
			list[i] = &target{err: fmt.Errorf("%w: subscription %v", ErrNotFound, claims[i].Subscription)}
		}
	}
	return list, nil
}

func (t *targets) read(ctx context.Context, ids []int64) (map[SubscriptionID]*target, error) {
	rows, err := queries.SubscriptionTargets(ctx, t.store.pool, ids)
	if err != nil {
		return nil, fmt.Errorf("delivery: read subscriptions: %w", err)
	}
	read := make(map[SubscriptionID]*target, len(rows))
	for _, r := range rows {
		id := SubscriptionID(r.ID)
		x := &target{revision: r.Revision, url: r.Url, thin: r.Thin}
		if r.SecretExpiresMs >= 0 {
			x.until = time.Now().Add(time.Duration(r.SecretExpiresMs) * time.Millisecond)
		}
		for i, sealed := range r.Secrets {
			if x.err = t.store.addSecret(x, id, sealed, r.KeyIds[i]); x.err != nil {
				break
			}
		}
		if len(x.secrets) == 0 && x.err == nil {
			x.err = fmt.Errorf("delivery: subscription %v has no secret; rotate its secret", id)
		}
		if x.err == nil {
			x.header, x.err = t.store.openHeaders(id, r.Headers, r.HeadersKeyID)
		}
		if x.err != nil {
			// Not kept for long: a key may be added, or the row mended.
			x.until = time.Now().Add(time.Second)
		}
		read[id] = x
	}
	return read, nil
}

// addSecret adds what makes v1 signatures, or v1a ones, to a target.
func (s *Store) addSecret(t *target, id SubscriptionID, sealed []byte, keyID string) error {
	plain, err := s.keyring.open(id, sealed, keyID)
	if err != nil {
		return err
	}
	if key, err := signing.ParsePrivateKey(string(plain)); err == nil {
		t.keys = append(t.keys, key)
		return nil
	}
	secret, err := signing.Parse(string(plain))
	if err != nil {
		return err
	}
	t.secrets = append(t.secrets, secret)
	return nil
}
