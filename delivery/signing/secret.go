package signing

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"strings"
	"sync"
)

const (
	secretPrefix = "whsec_"
	// Standard Webhooks 1.0.0 asks for 24 to 64 random bytes.
	minSecretBytes = 24
	maxSecretBytes = 64

	// DefaultSecretBytes is the size that Generate makes if it is not told
	// one: the first multiple of 3 that is no weaker than HMAC-SHA256 itself.
	DefaultSecretBytes = 33

	redactedSecret = secretPrefix + "[redacted]"
)

// ErrSecret is matched by every error about the text or size of a secret or
// key. The text of such an error never holds what was being parsed.
var ErrSecret = errors.New("signing: not a usable secret")

// Secret is a symmetric signing key. Printing, logging and encoding one shows
// "whsec_[redacted]"; only Reveal gives the text. Copies share the key. The
// zero value holds no key: see IsZero. A Secret is safe for concurrent use.
type Secret struct {
	key *symmetricKey
}

type symmetricKey struct {
	// reveal returns the key. It is a function because fmt shows one as an
	// address: it prints the unexported fields of a struct that holds a Secret
	// without calling Format, and for verbs such as %s it goes through pointers.
	reveal func() []byte
	// macs holds *mac values that are keyed and reset. Keying costs two
	// SHA-256 blocks and several allocations; Reset restores a saved state.
	macs sync.Pool
}

type mac struct {
	hash   hash.Hash
	prefix []byte // "{id}.{timestamp}.", reused
	sum    [sha256.Size]byte
}

// Generate returns a new random secret of the given number of bytes, or of
// DefaultSecretBytes for 0. The size must be a multiple of 3 from 24 to 63: its
// base64 then has no padding, which some libraries want and others drop.
func Generate(bytes int) (Secret, error) {
	if bytes == 0 {
		bytes = DefaultSecretBytes
	}
	if bytes < minSecretBytes || bytes > maxSecretBytes || bytes%3 != 0 {
		return Secret{}, fmt.Errorf("%w: cannot generate %d bytes; choose a multiple of 3 from 24 to 63", ErrSecret, bytes)
	}
	raw := make([]byte, bytes)
	rand.Read(raw) // never fails: crypto/rand ends the process instead
	return newSecret(raw), nil
}

// Parse reads a secret: "whsec_" and the padded standard base64 of 24 to 64
// bytes, and nothing else. Libraries differ in what more they take (line
// breaks, missing padding, stray trailing bits); a secret that they all read
// as the same key is the only safe one. The error matches ErrSecret.
func Parse(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return Secret{}, fmt.Errorf("%w: it does not begin with %q", ErrSecret, secretPrefix)
	}
	raw, err := decodeStrict(encoded)
	if err != nil {
		return Secret{}, err
	}
	if len(raw) < minSecretBytes || len(raw) > maxSecretBytes {
		return Secret{}, fmt.Errorf("%w: it holds %d bytes; 24 to 64 are needed", ErrSecret, len(raw))
	}
	return newSecret(raw), nil
}

func newSecret(raw []byte) Secret {
	k := &symmetricKey{reveal: func() []byte { return raw }}
	k.macs.New = func() any {
		return &mac{hash: hmac.New(sha256.New, raw)}
	}
	return Secret{key: k}
}

// decodeStrict refuses what encoding/base64 skips (line breaks) or overlooks
// (trailing bits that are not zero).
func decodeStrict(encoded string) ([]byte, error) {
	if strings.ContainsAny(encoded, "\r\n") {
		return nil, fmt.Errorf("%w: it holds a line break", ErrSecret)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		// The decoder's error would tell where the text goes wrong.
		return nil, fmt.Errorf("%w: it is not padded standard base64", ErrSecret)
	}
	return raw, nil
}

// IsZero reports whether s is the zero value, which can neither sign nor
// verify.
func (s Secret) IsZero() bool { return s.key == nil }

// Equal reports in constant time whether two secrets hold the same key.
func (s Secret) Equal(other Secret) bool {
	if s.IsZero() || other.IsZero() {
		return s.IsZero() && other.IsZero()
	}
	return subtle.ConstantTimeCompare(s.key.reveal(), other.key.reveal()) == 1
}

// Reveal returns the text of the secret, for the one answer that shows it and
// for encrypted storage. It is "" for the zero value.
func (s Secret) Reveal() string {
	if s.IsZero() {
		return ""
	}
	return secretPrefix + base64.StdEncoding.EncodeToString(s.key.reveal())
}

// String returns "whsec_[redacted]".
func (s Secret) String() string { return redactedSecret }

// Format writes "whsec_[redacted]" for every verb and flag.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, redactedSecret) }

// LogValue logs "whsec_[redacted]".
func (s Secret) LogValue() slog.Value { return slog.StringValue(redactedSecret) }

// MarshalText encodes "whsec_[redacted]", for encoders that would otherwise
// find nothing in a Secret and hide that one was there.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redactedSecret), nil }
