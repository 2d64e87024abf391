package receiver

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRequestLog(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	b := setup(t, Config{Log: &log, Secrets: map[string][]string{"/signed": {secretA}}})
	b.send(hook{path: "/orders", seq: 12, asset: "A-17", body: `{"card":"4111"}`})
	b.send(hook{path: "/orders", seq: 12, asset: "A-17", attempt: 2, body: `{"card":"4111"}`})
	b.send(hook{path: "/signed", secret: secretB})
	b.send(hook{path: "/signed", secret: secretA})
	b.send(hook{path: "/x%0A%1b[2J", asset: "a b\u202e", change: func(h http.Header) { h[headerType] = []string{`"`} }})
	b.is.Equal(log.String(), `12:00:00.000 POST /orders order.paid asset=A-17 seq=12 attempt=1 200
12:00:00.000 POST /orders order.paid asset=A-17 seq=12 attempt=2 200 duplicate,redelivered
12:00:00.000 POST /signed order.paid asset=- seq=1 attempt=1 401 bad_signature
12:00:00.000 POST /signed order.paid asset=- seq=1 attempt=1 200
12:00:00.000 POST "/x\n\x1b[2J" "\"" asset="a b\u202e" seq=1 attempt=1 200
`)
}

// lines collects what is written, one string per Write.
type lines []string

func (l *lines) Write(p []byte) (int, error) {
	*l = append(*l, string(p))
	return len(p), nil
}

func TestProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, Config{})
		var out lines
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { b.Progress(ctx, &out); close(done) }()
		time.Sleep(time.Second / 2) // between the ticks, from here on
		for i := range int64(2000) {
			b.send(hook{seq: i + 1, prev: i})
		}
		b.send(hook{seq: 1, attempt: 2})
		time.Sleep(time.Second)
		synctest.Wait()
		b.is.Equal(out, lines{"     2,000 events     2,000/s  1 duplicates  in order\n"})
		time.Sleep(5 * time.Second) // nothing arrives: nothing is written
		synctest.Wait()
		b.is.Equal(len(out), 1)
		b.send(hook{seq: 3000, prev: 2999})
		b.send(hook{seq: 2999, prev: 2000})
		time.Sleep(time.Second)
		synctest.Wait()
		b.is.Equal(out[1:], lines{"     2,002 events         2/s  1 duplicates  1 OUT OF ORDER, 1 GAPS\n"})
		b.send(hook{path: "/other"})
		cancel()
		<-done
		b.is.Equal(len(out), 3) // a last line
	})
}

func TestProgressOfLight(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Light: true})
	b.send(hook{})
	b.is.Equal(b.Verdict().line(Verdict{}, time.Second), "         1 requests         1/s  not judged")
}
