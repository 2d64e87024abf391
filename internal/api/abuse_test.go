package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// endless is a body that never ends, and counts what was read of it.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, strings.Repeat(" ", len(p)))
	e.read += n
	return n, nil
}

// A body without an end is given up at the limit, and not a moment later, also by a key that
// may not send it.
func TestABodyWithoutAnEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(nil)
	for _, c := range []struct {
		key, path string
		most      int
		status    int
	}{
		{b.acme, "/v1/events", 8 << 20, 413},
		{b.acme, "/v1/subscriptions", 256 << 10, 413},
		{b.acme, sub + "/deliveries/retry", 256 << 10, 413},
		{b.reader, "/v1/events", 0, 403},
		{"", "/v1/events", 0, 401},
	} {
		body := &endless{}
		r := httptest.NewRequestWithContext(b.ctx, http.MethodPost, c.path, io.NopCloser(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+c.key)
		w := httptest.NewRecorder()
		b.api.ServeHTTP(w, r)
		b.is.Equal(w.Code, c.status)
		b.is.True(body.read <= c.most+64<<10) // and a buffer
	}
}

// What is nested or repeated without measure is refused, or answered, and never costs the
// server its life.
func TestDeepAndLong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sub := b.subscribe(nil)
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	b.refused("invalid", b.do(b.acme, "POST", "/v1/events", `{"events":[{"type":"a","payload":`+deep+`}]}`))
	b.refused("invalid", b.do(b.acme, "POST", "/v1/subscriptions", deep))
	b.refused("invalid", b.do(b.acme, "POST", "/v1/subscriptions", `{"url":`+strings.Repeat(`{"a":`, 40_000)+"1"+strings.Repeat("}", 40_000)+"}"))
	types := `"a` + strings.Repeat(`","a`, 5000) + `"`
	b.refused("invalid", b.do(b.acme, "POST", "/v1/subscriptions", `{"url":"https://example.com/","event_types":[`+types+`]}`))
	var headers []string
	for i := range 2000 {
		headers = append(headers, fmt.Sprintf(`"x-%d":"a"`, i))
	}
	b.refused("invalid", b.do(b.acme, "POST", "/v1/subscriptions", `{"url":"https://example.com/","headers":{`+strings.Join(headers, ",")+`}}`))
	b.want(200, b.acme, "GET", sub+"/deliveries?state=dead"+strings.Repeat(",dead", 4000), nil)
	b.refused("invalid", b.do(b.acme, "GET", sub+"/deliveries?"+strings.Repeat("x=1&", 8000), nil))
	b.refused("invalid", b.do(b.acme, "GET", sub+"/deliveries?asset="+strings.Repeat("a", 600), nil))
	b.refused("invalid", b.do(b.acme, "GET", sub+"/deliveries?cursor="+strings.Repeat("A", 30_000), nil))
}
