//go:build !race

package signing_test

import (
	"testing"

	"github.com/postlane-go/postlane/delivery/signing"
)

// TestSignDoesNotAllocate is not run under the race detector, where sync.Pool
// drops values at random.
//
//nolint:paralleltest // the count is the whole process's
func TestSignDoesNotAllocate(t *testing.T) {
	secret, old := generate(t), generate(t)
	dst := make([]byte, 0, 128)
	body := []byte(`{"type":"invoice.paid"}`)
	if n := testing.AllocsPerRun(1000, func() { signing.Sign(dst, "evt_2KWPBgLl", 1_700_000_000, body, secret, old) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
