package receiver

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// tolerance of a timestamp, both ways: that of the official libraries.
const tolerance = 5 * time.Minute

var (
	errBadSignature  = errors.New("no signature by a known secret")
	errSignatureForm = errors.New("webhook-signature must be one line of version,base64 separated by single spaces")
)

// keyring are the keys of one path. A request is genuine if any one of them
// verifies any one of its signatures.
//
// The v1 signatures are judged by the official Go library: 1.3 µs for a small
// body, where a request over HTTP takes some 25 µs of both ends. It knows no v1a, so those are judged here.
type keyring struct {
	symmetric  []*standardwebhooks.Webhook
	asymmetric []ed25519.PublicKey
}

// newKeyring parses whsec_ secrets and whpk_ public keys.
func newKeyring(secrets []string) (*keyring, error) {
	k := new(keyring)
	for i, secret := range secrets {
		// An error never repeats the secret, only its place.
		if text, ok := strings.CutPrefix(secret, "whpk_"); ok {
			key, err := base64.StdEncoding.Strict().DecodeString(text)
			if err != nil || len(key) != ed25519.PublicKeySize {
				return nil, fmt.Errorf("receiver: secret %d is no whpk_ key: it needs the base64 of %d bytes after its prefix", i, ed25519.PublicKeySize)
			}
			k.asymmetric = append(k.asymmetric, key)
			continue
		}
		text, ok := strings.CutPrefix(secret, "whsec_")
		if !ok || strings.ContainsAny(text, "\r\n") { // which Go's decoder skips
			return nil, fmt.Errorf("receiver: secret %d must begin with whsec_ or whpk_ and be one line", i)
		}
		// The library takes an empty secret, and signs with an empty key.
		key, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("receiver: secret %d is no whsec_ secret: it needs the base64 of 24 to 64 bytes after its prefix", i)
		}
		w, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			return nil, fmt.Errorf("receiver: secret %d: not accepted by the Standard Webhooks library", i)
		}
		k.symmetric = append(k.symmetric, w)
	}
	return k, nil
}

func (k *keyring) empty() bool { return k == nil || len(k.symmetric)+len(k.asymmetric) == 0 }

// verify judges the signature of a request, not its timestamp.
func (k *keyring) verify(h http.Header, body []byte) error {
	signatures, ok := single(h, headerSignature)
	if !ok || !wellFormed(signatures) {
		return errSignatureForm
	}
	for _, w := range k.symmetric {
		if w.VerifyIgnoringTimestamp(body, h) == nil {
			return nil
		}
	}
	if len(k.asymmetric) > 0 && k.verifyV1a(h, signatures, body) {
		return nil
	}
	return errBadSignature
}

func (k *keyring) verifyV1a(h http.Header, signatures string, body []byte) bool {
	content := make([]byte, 0, 128+len(body))
	content = append(content, h.Get(headerID)...)
	content = append(content, '.')
	content = append(content, h.Get(headerTimestamp)...)
	content = append(content, '.')
	content = append(content, body...)
	for part := range strings.SplitSeq(signatures, " ") {
		text, ok := strings.CutPrefix(part, "v1a,")
		if !ok {
			continue
		}
		signature, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			continue
		}
		for _, key := range k.asymmetric {
			if ed25519.Verify(key, content, signature) {
				return true
			}
		}
	}
	return false
}

// wellFormed holds a sender to the narrow form that every official library
// reads: some accept more, and Python's raises an error for two spaces.
func wellFormed(signatures string) bool {
	for part := range strings.SplitSeq(signatures, " ") {
		version, text, ok := strings.Cut(part, ",")
		if !ok || version == "" || text == "" || strings.Contains(text, ",") {
			return false
		}
	}
	return true
}
