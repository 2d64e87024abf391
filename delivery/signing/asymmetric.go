package signing

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

const (
	privatePrefix   = "whsk_"
	publicPrefix    = "whpk_"
	redactedPrivate = privatePrefix + "[redacted]"
)

// PrivateKey is an Ed25519 signing key ("whsk_"), for receivers that should be
// able to verify without being able to sign. Like Secret it prints redacted.
// The zero value holds no key. It is safe for concurrent use.
type PrivateKey struct {
	reveal func() ed25519.PrivateKey // a function for the reason given in symmetricKey
}

func newPrivateKey(key ed25519.PrivateKey) PrivateKey {
	return PrivateKey{reveal: func() ed25519.PrivateKey { return key }}
}

// GeneratePrivateKey returns a new random key.
func GeneratePrivateKey() PrivateKey {
	// A nil reader is crypto/rand, which cannot fail.
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic("signing: " + err.Error())
	}
	return newPrivateKey(key)
}

// ParsePrivateKey reads "whsk_" and the padded standard base64 of the 64
// bytes of seed and public key (RFC 8032). Halves that do not belong together
// are refused: signing with them gives the seed away. The error matches
// ErrSecret.
func ParsePrivateKey(text string) (PrivateKey, error) {
	raw, err := parseKey(text, privatePrefix, ed25519.PrivateKeySize)
	if err != nil {
		return PrivateKey{}, err
	}
	key := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
	if !key.Equal(ed25519.PrivateKey(raw)) {
		return PrivateKey{}, fmt.Errorf("%w: its public half does not belong to its seed", ErrSecret)
	}
	return newPrivateKey(key), nil
}

// IsZero reports whether k is the zero value, which cannot sign.
func (k PrivateKey) IsZero() bool { return k.reveal == nil }

// Public returns the key that verifies, to be shown to the receiver.
func (k PrivateKey) Public() PublicKey {
	if k.IsZero() {
		return PublicKey{}
	}
	return PublicKey{key: k.reveal().Public().(ed25519.PublicKey)}
}

// Reveal returns the text of the key. It is "" for the zero value.
func (k PrivateKey) Reveal() string {
	if k.IsZero() {
		return ""
	}
	return privatePrefix + base64.StdEncoding.EncodeToString(k.reveal())
}

// String returns "whsk_[redacted]".
func (k PrivateKey) String() string { return redactedPrivate }

// Format writes "whsk_[redacted]" for every verb and flag.
func (k PrivateKey) Format(f fmt.State, _ rune) { io.WriteString(f, redactedPrivate) }

// LogValue logs "whsk_[redacted]".
func (k PrivateKey) LogValue() slog.Value { return slog.StringValue(redactedPrivate) }

// MarshalText encodes "whsk_[redacted]".
func (k PrivateKey) MarshalText() ([]byte, error) { return []byte(redactedPrivate), nil }

// contents are buffers for signed content: Ed25519 reads it twice, so it
// cannot be streamed as for HMAC. Buffers that met a large body are let go.
var contents = sync.Pool{New: func() any { return new([]byte) }}

const maxPooledContent = 1 << 20

// Sign appends a "v1a" signature to dst as the function Sign does a "v1" one.
// It panics for the zero value.
func (k PrivateKey) Sign(dst []byte, id string, timestamp int64, body []byte) []byte {
	if k.IsZero() {
		panic("signing: Sign with the zero PrivateKey")
	}
	if len(dst) > 0 {
		dst = append(dst, ' ')
	}
	withContent(id, timestamp, body, func(content []byte) {
		dst = append(dst, "v1a,"...)
		dst = base64.StdEncoding.AppendEncode(dst, ed25519.Sign(k.reveal(), content))
	})
	return dst
}

func withContent(id string, timestamp int64, body []byte, use func([]byte)) {
	buf := contents.Get().(*[]byte)
	*buf = append(appendContentPrefix((*buf)[:0], id, timestamp), body...)
	use(*buf)
	if cap(*buf) <= maxPooledContent {
		contents.Put(buf)
	}
}

// PublicKey verifies what a PrivateKey signed ("whpk_"). It is no secret and
// prints as its text. The zero value verifies nothing.
type PublicKey struct {
	key ed25519.PublicKey
}

// ParsePublicKey reads "whpk_" and the padded standard base64 of 32 bytes. The
// error matches ErrSecret.
func ParsePublicKey(text string) (PublicKey, error) {
	raw, err := parseKey(text, publicPrefix, ed25519.PublicKeySize)
	if err != nil {
		return PublicKey{}, err
	}
	return PublicKey{key: raw}, nil
}

// IsZero reports whether k is the zero value.
func (k PublicKey) IsZero() bool { return k.key == nil }

// String returns the text of the key, or "" for the zero value.
func (k PublicKey) String() string {
	if k.IsZero() {
		return ""
	}
	return publicPrefix + base64.StdEncoding.EncodeToString(k.key)
}

func parseKey(text, prefix string, size int) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrSecret, prefix)
	}
	raw, err := decodeStrict(encoded)
	if err != nil {
		return nil, err
	}
	if len(raw) != size {
		return nil, fmt.Errorf("%w: it holds %d bytes; %d are needed", ErrSecret, len(raw), size)
	}
	return raw, nil
}
