package journal

import (
	"fmt"
	"math/rand/v2"
)

// Marker begins every payload, and stands nowhere else: a log that has it has leaked.
const Marker = "tortured-payload-"

// Payload returns the payload of an event, which nobody needs to write down.
func Payload(nonce uint64, size int) []byte {
	b := fmt.Appendf(nil, `{"mark":%q,"pad":"`, fmt.Sprint(Marker, nonce))
	random := rand.New(rand.NewPCG(nonce, 0))
	for len(b) < size {
		b = fmt.Appendf(b, "%016x", random.Uint64())
	}
	return append(b, `"}`...)
}
