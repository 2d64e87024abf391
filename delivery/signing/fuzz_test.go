package signing_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery/signing"
)

// FuzzRoundTrip holds that what is signed verifies by either scheme, and that nothing else
// does: not another id, time or body, not with another key, not with a changed signature.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("k"), "evt_1", int64(1_700_000_000), []byte("{}"), uint16(0))
	f.Add([]byte(nil), "", int64(0), []byte(nil), uint16(9))
	f.Add([]byte("k"), "a.1", int64(1), []byte("1.{}"), uint16(77))
	key, other := signing.GeneratePrivateKey(), signing.GeneratePrivateKey()
	f.Fuzz(func(t *testing.T, seed []byte, id string, timestamp int64, body []byte, flip uint16) {
		sum := sha256.Sum256(seed)
		secret, err := signing.Parse("whsec_" + base64.StdEncoding.EncodeToString(sum[:]))
		if err != nil {
			t.Fatal(err)
		}
		sum[0] ^= 1
		wrong, err := signing.Parse("whsec_" + base64.StdEncoding.EncodeToString(sum[:]))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(timestamp, 0)
		for _, scheme := range []struct {
			signature        string
			verifier, others signing.Key
		}{
			{string(signing.Sign(nil, id, timestamp, body, secret)), secret, wrong},
			{string(key.Sign(nil, id, timestamp, body)), key.Public(), other.Public()},
		} {
			h := signing.Headers{ID: id, Timestamp: strconv.FormatInt(timestamp, 10), Signature: scheme.signature}
			good := func(h signing.Headers, body []byte, key signing.Key, at time.Time) bool {
				return signing.Verify([]signing.Key{key}, h, body, at, 0) == nil
			}
			if want := id != "" && timestamp >= 0; good(h, body, scheme.verifier, now) != want {
				t.Fatalf("%+v of %q: verifies: %v", h, body, !want)
			}
			if good(h, body, scheme.others, now) {
				t.Fatalf("%+v verifies with another key", h)
			}
			changed := h
			raw := []byte(h.Signature)
			raw[int(flip)%len(raw)] ^= 1
			changed.Signature = string(raw)
			if good(changed, body, scheme.verifier, now) {
				t.Fatalf("%+v verifies, changed to %q", h, raw)
			}
			changed = h
			changed.ID += "x"
			if good(changed, body, scheme.verifier, now) || good(h, append([]byte("x"), body...), scheme.verifier, now) {
				t.Fatalf("%+v verifies with another id or body", h)
			}
			changed = h
			changed.Timestamp = strconv.FormatInt(timestamp^1, 10)
			if good(changed, body, scheme.verifier, now) {
				t.Fatalf("%+v verifies with another time", h)
			}
			late := now.Add(signing.DefaultTolerance + time.Second)
			if err := signing.Verify([]signing.Key{scheme.verifier}, h, body, late, 0); err == nil {
				t.Fatalf("%+v verifies too late", h)
			} else if id != "" && timestamp >= 0 && late.Unix() > timestamp && !errors.Is(err, signing.ErrTooOld) {
				t.Fatalf("%+v too late: %v", h, err)
			}
		}
	})
}
