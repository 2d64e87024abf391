package receiver

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// discard is a ResponseWriter that costs nothing.
type discard struct {
	h      http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

// BenchmarkReceive is the receiver's own share of a request, without net/http:
// each event new, 1,000 streams.
func BenchmarkReceive(b *testing.B) {
	for name, config := range map[string]Config{
		"unverified": {},
		"signed":     {Secrets: map[string][]string{AnyPath: {secretA}}},
		"light":      {Light: true},
	} {
		b.Run(name, func(b *testing.B) {
			bundle := setup(b, config)
			var worker atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				h := hook{id: "msg_1", timestamp: noon, body: string(bytes.Repeat([]byte("x"), 300)), secret: secretA}
				req := h.request()
				body := bytes.NewReader([]byte(h.body))
				req.Body = io.NopCloser(body)
				w := &discard{h: http.Header{}}
				seqs := make([]int64, 1000)
				prefix := strconv.FormatInt(worker.Add(1), 10) + "-"
				var id, asset, seq, prev []byte
				for i := int64(0); pb.Next(); i++ {
					k := i % 1000
					if config.Secrets == nil { // the signature covers the id: signed repeats one event
						id = strconv.AppendInt(append(id[:0], prefix...), i, 10)
						asset = strconv.AppendInt(append(asset[:0], prefix...), k, 10)
						req.Header[headerID][0] = string(id)
						req.Header[headerAsset] = []string{string(asset)}
						seq = strconv.AppendInt(seq[:0], i+1, 10)
						req.Header[headerSeq][0] = string(seq)
						delete(req.Header, headerPrev)
						if seqs[k] != 0 {
							prev = strconv.AppendInt(prev[:0], seqs[k], 10)
							req.Header[headerPrev] = []string{string(prev)}
						}
						seqs[k] = i + 1
					}
					body.Seek(0, io.SeekStart)
					bundle.ServeHTTP(w, req)
				}
			})
			b.StopTimer()
			v := bundle.Verdict()
			if config.Secrets == nil && !config.Light && !v.OK() {
				b.Fatal(v.Examples)
			}
			b.ReportMetric(float64(v.Requests)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}

// BenchmarkServe is a request over a connection of its own worker, with a bare
// sender in the same process: what is left for a sender on this machine.
func BenchmarkServe(b *testing.B) {
	for name, config := range map[string]Config{
		"signed": {Secrets: map[string][]string{AnyPath: {secretA}}},
		"light":  {Light: true},
	} {
		b.Run(name, func(b *testing.B) {
			bundle := setup(b, config)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			bundle.is.NoErr(err)
			ctx, cancel := context.WithCancel(b.Context())
			served := make(chan error, 1)
			go func() { served <- bundle.Serve(ctx, ln) }()
			var worker atomic.Int64
			b.SetParallelism(16)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				conn, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					b.Error(err)
					return
				}
				defer conn.Close()
				asset := "asset-" + strconv.FormatInt(worker.Add(1), 10) // a stream each, or all would overlap
				h := hook{id: asset, asset: asset, secret: secretA, body: strings.Repeat("x", 300)}
				var request bytes.Buffer
				_ = h.request().Write(&request)
				answers := bufio.NewReader(conn)
				for pb.Next() {
					_, _ = conn.Write(request.Bytes())
					for line := "x"; line != "\r\n"; {
						if line, err = answers.ReadString('\n'); err != nil {
							b.Error(err)
							return
						}
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
			cancel()
			bundle.is.NoErr(<-served)
			bundle.is.Equal(bundle.Verdict().Problems(), int64(0))
		})
	}
}
