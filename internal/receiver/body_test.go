package receiver

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

func TestBodies(t *testing.T) {
	t.Parallel()
	const limit = 10_000
	for name, test := range map[string]struct {
		body   io.Reader
		length int64
		status int
		want   int64
	}{
		"empty":                    {strings.NewReader(""), 0, 200, 0},
		"one byte at a time":       {iotest.OneByteReader(strings.NewReader(`{"a":1}`)), -1, 200, 0},
		"at the limit":             {bytes.NewReader(make([]byte, limit)), limit, 200, 0},
		"at the limit, chunked":    {bytes.NewReader(make([]byte, limit)), -1, 200, 0},
		"above it":                 {bytes.NewReader(make([]byte, limit+1)), limit + 1, 413, 1},
		"said to be above it":      {iotest.ErrReader(errors.New("read")), limit + 1, 413, 1},
		"above it, chunked":        {bytes.NewReader(make([]byte, limit+1)), -1, 413, 1},
		"broken off":               {io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF)), 10, 400, 1},
		"broken off by a time-out": {iotest.ErrReader(errors.New("i/o timeout")), 10, 400, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Config{MaxBody: limit})
			req := hook{}.request()
			req.Body, req.ContentLength = io.NopCloser(test.body), test.length
			b.is.Equal(b.serve(req), test.status)
			v := b.Verdict()
			b.is.Equal(v.Unread, test.want)
			b.is.Equal(v.Problems(), test.want)
			b.is.Equal(v.Events, 1-test.want)
		})
	}
}

// A body longer than the pooled buffer is compared to its last byte.
func TestLongBodies(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Secrets: map[string][]string{AnyPath: {secretA}}})
	long := strings.Repeat("x", 2*keep)
	b.is.Equal(b.send(hook{seq: 1, body: long + "a", secret: secretA}), 200)
	b.is.Equal(b.send(hook{seq: 1, body: long + "a", secret: secretA}), 200)
	b.is.Equal(b.Verdict().Problems(), int64(0))
	b.is.Equal(b.send(hook{seq: 1, body: long + "b", secret: secretA}), 200)
	b.is.Equal(b.Verdict().Conflicting, int64(1))
}

func TestMethods(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{})
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
		req := hook{}.request()
		req.Method = method
		b.is.Equal(b.serve(req), http.StatusMethodNotAllowed)
	}
	b.is.Equal(b.Verdict().Requests, int64(0))
}
