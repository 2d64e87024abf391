package receiver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

var errTooLarge = errors.New("body larger than MaxBody")

// buffer holds a body while it is judged.
type buffer struct{ b []byte }

var bodies = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, 4096)} }}

// keep is the largest buffer that goes back to the pool as it is: one large
// body must not hold its memory for ever.
const keep = 256 << 10

// fill reads a request's body to its end, so that net/http from then on
// notices a sender that hangs up.
func (b *buffer) fill(req *http.Request, limit int64) error {
	if req.ContentLength > limit {
		return errTooLarge
	}
	if cap(b.b) > keep {
		b.b = make([]byte, 0, 4096)
	}
	if n := int(req.ContentLength); n > cap(b.b) {
		b.b = make([]byte, 0, n)
	}
	b.b = b.b[:0]
	for {
		if len(b.b) == cap(b.b) {
			b.b = append(b.b, 0)[:len(b.b)]
		}
		n, err := req.Body.Read(b.b[len(b.b):cap(b.b)])
		b.b = b.b[:len(b.b)+n]
		if int64(len(b.b)) > limit {
			return errTooLarge
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("body broke off: %w", err)
		}
	}
}
