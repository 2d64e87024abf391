package cli_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// lockedBuffer is what a command prints while it runs.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (b *lockedBuffer) signal() chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.more == nil {
		b.more = make(chan struct{}, 1)
	}
	return b.more
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	more := b.signal()
	b.mu.Lock()
	n, err := b.text.Write(p)
	b.mu.Unlock()
	select {
	case more <- struct{}{}:
	default:
	}
	return n, err
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// await returns the word that follows text, once it is printed.
func (b *lockedBuffer) await(t *testing.T, text string) string {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		if _, rest, ok := strings.Cut(b.String(), text); ok {
			if i := strings.IndexAny(rest, "/ \n"); i > 0 {
				return rest[:i]
			}
		}
		select {
		case <-b.signal():
		case <-deadline:
			t.Fatalf("%q was not printed; but\n%s", text, b.String())
		}
	}
}
