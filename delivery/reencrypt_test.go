package delivery_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
)

// secretsOf reads what signs each subscription, with a keyring.
func (b *bundle) secretsOf(k *delivery.Keyring, subs []delivery.SubscriptionID) map[delivery.SubscriptionID]string {
	b.t.Helper()
	store := b.with(k)
	all := map[delivery.SubscriptionID]string{}
	for _, sub := range subs {
		secrets, err := store.SecretsOf(b.ctx, sub)
		b.is.NoErr(err)
		all[sub] = strings.Join(secrets, " ")
	}
	return all
}

// A key is changed step by step, and at each of them everybody who may run reads
// everything.
func TestReencrypt(t *testing.T) {
	t.Parallel()
	plain, oldKey := (*delivery.Keyring)(nil), keyring(t, key(1))
	b := setupOn(t, pgtest.New(t), delivery.StoreConfig{})
	const each = 150 // more than a batch, together
	var subs []delivery.SubscriptionID
	for _, k := range []*delivery.Keyring{plain, oldKey} {
		b.store = b.with(k)
		for i := range each {
			subs = append(subs, b.subscribe(func(s *delivery.Settings) {
				if i%3 == 0 {
					s.V1a, s.Headers = true, map[string]string{"X-Token": fmt.Sprint("secret ", i)}
				}
			}))
		}
	}
	before := b.secretsOf(oldKey, subs)
	oldNew, newOld, onlyNew := keyring(t, key(1), key(2)), keyring(t, key(2), key(1)), keyring(t, key(2))
	b.is.True(maps.Equal(b.secretsOf(oldNew, subs), before))
	revisions := one[int64](b, `SELECT sum(revision) FROM postlane.subscriptions`)

	store := b.with(newOld)
	left, err := store.StaleSecrets(b.ctx)
	b.is.NoErr(err)
	b.is.Equal(left, int64(2*(each+each/3+each/3))) // secrets, v1a keys, headers
	did, err := store.Reencrypt(b.ctx)
	b.is.NoErr(err)
	b.is.Equal(did, delivery.Reencrypted{Done: left})
	for _, k := range []*delivery.Keyring{oldNew, newOld, onlyNew} {
		b.is.True(maps.Equal(b.secretsOf(k, subs), before))
	}
	b.is.Equal(one[int64](b, `SELECT sum(revision) FROM postlane.subscriptions`), revisions)
	b.is.True(!strings.Contains(b.state(), "secret 3"))
	again, err := store.Reencrypt(b.ctx)
	b.is.NoErr(err)
	b.is.Equal(again, delivery.Reencrypted{})
}

// What cannot be read is left and named; the rest is done.
func TestReencryptGoesPastWhatItCannotRead(t *testing.T) {
	t.Parallel()
	b := setupOn(t, pgtest.New(t), delivery.StoreConfig{Keyring: keyring(t, key(1))})
	b.subscribe()
	bad := b.subscribe()
	b.subscribe()
	b.exec("UPDATE postlane.subscription_secrets SET secret = '\\x00' WHERE subscription_id = $1", bad)
	did, err := b.with(keyring(t, key(2), key(1))).Reencrypt(b.ctx)
	b.is.True(err != nil && strings.Contains(err.Error(), bad.String()) && strings.Contains(err.Error(), "damaged"))
	b.is.Equal(did, delivery.Reencrypted{Done: 2, Left: 1})
	_, err = setup(t).store.Reencrypt(b.ctx)
	b.is.True(err != nil && strings.Contains(err.Error(), "keyring"))
}

// Secrets that are rotated at the same time are neither lost nor overwritten.
func TestReencryptBesideRotations(t *testing.T) {
	t.Parallel()
	newOld := keyring(t, key(2), key(1))
	b := setupOn(t, pgtest.New(t), delivery.StoreConfig{Keyring: keyring(t, key(1), key(2))})
	var subs []delivery.SubscriptionID
	for range 8 {
		subs = append(subs, b.subscribe())
	}
	current := map[delivery.SubscriptionID]string{}
	var both sync.WaitGroup
	both.Go(func() {
		for range 5 {
			for _, sub := range subs {
				secret, err := b.store.RotateSecret(b.ctx, sub, time.Hour)
				if err != nil {
					t.Error(err)
				}
				current[sub] = secret.Reveal()
			}
		}
	})
	store := b.with(newOld)
	both.Go(func() {
		for range 10 {
			if _, err := store.Reencrypt(b.ctx); err != nil {
				t.Error(err)
			}
		}
	})
	both.Wait()
	did, err := store.Reencrypt(b.ctx)
	b.is.NoErr(err)
	b.is.Equal(did.Left, int64(0))
	for sub, secrets := range b.secretsOf(keyring(t, key(2)), subs) {
		list := strings.Fields(secrets)
		b.is.Equal(list[0], current[sub])
		b.is.Equal(len(list), 6)
	}
}
