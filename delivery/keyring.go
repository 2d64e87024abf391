package delivery

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// KeySize is the size of a key of a Keyring, in bytes: AES-256.
const KeySize = 32

// Keyring encrypts signing secrets at rest, with AES-256-GCM: whoever reads the
// database, or a dump of it, learns no secret. Each stored secret names its key, so
// keys can be changed without downtime: make the new key the first, keep the old one
// behind it until no secret names it. A Keyring is safe for concurrent use.
type Keyring struct {
	current string
	keys    map[string]cipher.AEAD
	derive  []byte
}

// NewKeyring returns a keyring that encrypts with the first key and decrypts with
// any. Each has KeySize random bytes.
func NewKeyring(keys ...[]byte) (*Keyring, error) {
	if len(keys) == 0 {
		return nil, errors.New("delivery: a keyring needs a key")
	}
	k := &Keyring{keys: make(map[string]cipher.AEAD, len(keys))}
	for i, key := range keys {
		if len(key) != KeySize {
			return nil, fmt.Errorf("delivery: key %d has %d bytes, not %d; make one with: openssl rand -base64 32", i+1, len(key), KeySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("delivery: key %d: %w", i+1, err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, fmt.Errorf("delivery: key %d: %w", i+1, err)
		}
		sum := sha256.Sum256(key)
		id := hex.EncodeToString(sum[:4])
		if i == 0 {
			k.current = id
			k.derive = derived(key, "postlane derive")
		}
		k.keys[id] = aead
	}
	return k, nil
}

// Derive returns a key of 32 bytes for another purpose, the same for everybody who has
// the keyring's first key. It tells nothing about that key.
func (k *Keyring) Derive(purpose string) []byte { return derived(k.derive, purpose) }

func derived(key []byte, purpose string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(purpose))
	return h.Sum(nil)
}

// ParseKeyring reads keys in base64, the current one first.
func ParseKeyring(texts ...string) (*Keyring, error) {
	keys := make([][]byte, len(texts))
	for i, text := range texts {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("delivery: key %d is not standard base64; make one with: openssl rand -base64 32", i+1)
		}
		keys[i] = key
	}
	return NewKeyring(keys...)
}

// seal encrypts for one subscription: moved to another's row the result is useless.
// A nil keyring stores plain text, with no key's name.
func (k *Keyring) seal(id SubscriptionID, plain []byte) (sealed []byte, keyID *string) {
	if k == nil {
		return plain, nil
	}
	aead := k.keys[k.current]
	nonce := make([]byte, aead.NonceSize())
	rand.Read(nonce) // never fails: crypto/rand ends the process instead
	return aead.Seal(nonce, nonce, plain, binding(id)), &k.current
}

func (k *Keyring) open(id SubscriptionID, sealed []byte, keyID string) ([]byte, error) {
	if keyID == "" {
		return sealed, nil
	}
	if k == nil {
		return nil, fmt.Errorf("delivery: the secret of %v is encrypted with key %s, and no key is configured", id, keyID)
	}
	aead, ok := k.keys[keyID]
	if !ok {
		return nil, fmt.Errorf("delivery: the secret of %v is encrypted with key %s, which is not configured", id, keyID)
	}
	if len(sealed) < aead.NonceSize() {
		return nil, fmt.Errorf("delivery: the secret of %v is damaged", id)
	}
	plain, err := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], binding(id))
	if err != nil {
		return nil, fmt.Errorf("delivery: the secret of %v is damaged, or of another subscription", id)
	}
	return plain, nil
}

func binding(id SubscriptionID) []byte {
	return binary.BigEndian.AppendUint64([]byte("postlane secret "), uint64(id))
}
