package signing

import (
	"encoding/base64"
	"strconv"
)

// Sign appends to dst one "v1" signature for each secret and returns the
// extended buffer: the value of the webhook-signature header. A space goes
// before each signature unless the buffer is empty there, so that calls of
// Sign and PrivateKey.Sign add up to one value.
//
// The timestamp is in Unix seconds. The id must hold no full stop: with one,
// two different messages can share a signature. Sign does not check it.
//
// Sign allocates nothing once dst has room (45 bytes per signature) and the
// secret was used before. It panics for the zero Secret: a request signed with
// an empty key is signed for everybody.
func Sign(dst []byte, id string, timestamp int64, body []byte, secrets ...Secret) []byte {
	for _, secret := range secrets {
		if secret.IsZero() {
			panic("signing: Sign with the zero Secret")
		}
		if len(dst) > 0 {
			dst = append(dst, ' ')
		}
		dst = secret.key.appendSignature(dst, id, timestamp, body)
	}
	return dst
}

func (k *symmetricKey) appendSignature(dst []byte, id string, timestamp int64, body []byte) []byte {
	m := k.macs.Get().(*mac)
	m.hash.Reset()
	m.prefix = appendContentPrefix(m.prefix[:0], id, timestamp)
	m.hash.Write(m.prefix)
	m.hash.Write(body)
	sum := m.hash.Sum(m.sum[:0])
	dst = append(dst, "v1,"...)
	dst = base64.StdEncoding.AppendEncode(dst, sum)
	k.macs.Put(m)
	return dst
}

// appendContentPrefix appends what is signed before the body.
func appendContentPrefix(dst []byte, id string, timestamp int64) []byte {
	dst = append(dst, id...)
	dst = append(dst, '.')
	dst = strconv.AppendInt(dst, timestamp, 10)
	return append(dst, '.')
}
