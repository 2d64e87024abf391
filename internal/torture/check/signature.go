package check

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"time"
)

// clock is a time for people.
func clock(at int64) string {
	if at == never {
		return "never"
	}
	return time.Unix(0, at).UTC().Format("15:04:05.000")
}

// signed verifies a request's signatures as Standard Webhooks has them: one by a secret
// of the subscription, and one by its public key, if it has one. The rule is written
// here once more so that it does not share a mistake.
func signed(q *request, payload []byte, s *subscription) bool {
	content := append([]byte(q.ID+"."+q.Timestamp+"."), payload...)
	var symmetric, asymmetric bool
	for signature := range strings.FieldsSeq(q.Signature) {
		version, text, _ := strings.Cut(signature, ",")
		given, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return false
		}
		switch version {
		case "v1":
			for _, secret := range s.secrets {
				key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
				mac := hmac.New(sha256.New, key)
				mac.Write(content)
				symmetric = symmetric || hmac.Equal(mac.Sum(nil), given)
			}
		case "v1a":
			key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(s.PublicKey, "whpk_"))
			asymmetric = asymmetric || len(key) == ed25519.PublicKeySize && ed25519.Verify(key, content, given)
		}
	}
	return symmetric && (asymmetric || s.PublicKey == "")
}
