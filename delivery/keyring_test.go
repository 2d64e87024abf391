package delivery_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/internal/pgtest"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, delivery.KeySize) }

func keyring(t *testing.T, keys ...[]byte) *delivery.Keyring {
	t.Helper()
	k, err := delivery.NewKeyring(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// with is another store on the same database, with other keys.
func (b *bundle) with(k *delivery.Keyring) *delivery.Store {
	b.t.Helper()
	return setupOn(b.t, b.pool, delivery.StoreConfig{Keyring: k}).store
}

func TestSecretsAreEncryptedAtRest(t *testing.T) {
	t.Parallel()
	old := keyring(t, key(1))
	b := setupOn(t, pgtest.New(t), delivery.StoreConfig{Keyring: old})
	sub, secret, err := b.store.CreateSubscription(b.ctx, tenant, delivery.Settings{URL: "http://127.0.0.1:8099/"})
	b.is.NoErr(err)
	b.is.True(!strings.Contains(b.state(), secret.Reveal()))
	stored := one[[]byte](b, "SELECT secret FROM postlane.subscription_secrets")
	b.is.True(!bytes.Contains(stored, []byte(secret.Reveal()[6:])))
	secrets, err := b.store.SecretsOf(b.ctx, sub.ID)
	b.is.NoErr(err)
	b.is.Equal(secrets, []string{secret.Reveal()})

	// Without the key, or with another, nothing is read; and no error tells a secret.
	for name, k := range map[string]*delivery.Keyring{"none": nil, "another": keyring(t, key(9))} {
		_, err := b.with(k).SecretsOf(b.ctx, sub.ID)
		if err == nil || strings.Contains(err.Error(), secret.Reveal()) || !strings.Contains(err.Error(), "encrypted with key") {
			t.Errorf("%s: %v", name, err)
		}
	}

	// The key is changed: both for a while, then the new one alone.
	both := b.with(keyring(t, key(2), key(1)))
	secrets, err = both.SecretsOf(b.ctx, sub.ID)
	b.is.NoErr(err)
	b.is.Equal(secrets, []string{secret.Reveal()})
	rotated, err := both.RotateSecret(b.ctx, sub.ID, time.Hour)
	b.is.NoErr(err)
	secrets, err = both.SecretsOf(b.ctx, sub.ID)
	b.is.NoErr(err)
	b.is.Equal(secrets, []string{rotated.Reveal(), secret.Reveal()}) // the current one first
	only := b.with(keyring(t, key(2)))
	_, err = only.SecretsOf(b.ctx, sub.ID)
	b.is.True(err != nil) // the one before still names the old key
	b.exec("UPDATE postlane.subscription_secrets SET expires_at = now() WHERE expires_at IS NOT NULL")
	secrets, err = only.SecretsOf(b.ctx, sub.ID)
	b.is.NoErr(err)
	b.is.Equal(secrets, []string{rotated.Reveal()})
}

func TestAMovedOrDamagedSecretIsRefused(t *testing.T) {
	t.Parallel()
	b := setupOn(t, pgtest.New(t), delivery.StoreConfig{Keyring: keyring(t, key(1))})
	mine, theirs := b.subscribe(), b.subscribe()
	b.exec(`UPDATE postlane.subscription_secrets s SET secret = o.secret
		FROM postlane.subscription_secrets o WHERE s.subscription_id = $1 AND o.subscription_id = $2`, theirs, mine)
	_, err := b.store.SecretsOf(b.ctx, theirs)
	b.is.True(err != nil)
	b.is.True(strings.Contains(err.Error(), "of another subscription"))
	_, err = b.store.SecretsOf(b.ctx, mine)
	b.is.NoErr(err)
	for _, damage := range []string{"''", "'\\x00'", "set_byte(secret, 20, get_byte(secret, 20) # 1)", "substr(secret, 1, length(secret) - 1)"} {
		sub := b.subscribe()
		b.exec("UPDATE postlane.subscription_secrets SET secret = "+damage+" WHERE subscription_id = $1", sub)
		if _, err := b.store.SecretsOf(b.ctx, sub); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", damage, err)
		}
	}
}

// A database that was filled without a key is read with one, and what is new is encrypted.
func TestAKeyringOverPlainSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub, secret, err := b.store.CreateSubscription(b.ctx, tenant, delivery.Settings{URL: "http://127.0.0.1:8099/"})
	b.is.NoErr(err)
	with := b.with(keyring(t, key(1)))
	secrets, err := with.SecretsOf(b.ctx, sub.ID)
	b.is.NoErr(err)
	b.is.Equal(secrets, []string{secret.Reveal()})
	rotated, err := with.RotateSecret(b.ctx, sub.ID, 0)
	b.is.NoErr(err)
	b.is.True(!strings.Contains(b.state(), rotated.Reveal()))
	secrets, err = with.SecretsOf(b.ctx, sub.ID)
	b.is.NoErr(err)
	b.is.Equal(secrets, []string{rotated.Reveal()}) // no overlap: the old one signs no more
	_, err = with.RotateSecret(b.ctx, sub.ID, delivery.MaxSecretOverlap+1)
	b.is.True(err != nil)
	_, err = with.RotateSecret(b.ctx, 12345, 0)
	b.is.True(err != nil)
}

func TestKeyringsThatCannotWork(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	good := base64.StdEncoding.EncodeToString(key(7))
	_, err := delivery.ParseKeyring(good)
	is.NoErr(err)
	for _, texts := range [][]string{{}, {""}, {"short"}, {"not base64!"}, {good[:8]}, {good, "AA=="}} {
		_, err := delivery.ParseKeyring(texts...)
		is.True(err != nil)
		for _, text := range texts {
			is.True(len(text) < 8 || !strings.Contains(err.Error(), text)) // no error tells a key
		}
	}
}
