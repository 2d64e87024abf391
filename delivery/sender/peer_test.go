package sender_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/delivery/signing"
	"github.com/postlane-go/postlane/internal/dnstest"
)

// peer is the receiver's end of one connection, as raw as a test wants it.
type peer struct {
	net.Conn
	r      *bufio.Reader
	server *server
	number int64 // of the connection, from 1
}

// request is what a peer read.
type request struct {
	*http.Request
	body []byte
}

// read reads one request with its body, or returns nil when there is none.
func (p *peer) read() *request {
	req, err := http.ReadRequest(p.r)
	if err != nil {
		return nil
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil
	}
	r := &request{req, body}
	p.server.mu.Lock()
	p.server.requests = append(p.server.requests, r)
	p.server.mu.Unlock()
	return r
}

func (p *peer) write(s string) error {
	_, err := io.WriteString(p, s)
	return err
}

// finish sends FIN and reads on: closing with bytes unread would send RST.
func (p *peer) finish() {
	p.Conn.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, p.r)
}

// reset closes the connection with RST in place of FIN.
func (p *peer) reset() {
	conn := p.Conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// server runs a function for each connection on loopback, until the test ends.
type server struct {
	listener net.Listener
	accepted atomic.Int64
	done     sync.WaitGroup

	mu       sync.Mutex
	conns    []net.Conn
	requests []*request
}

// listen starts a server. A nil config is plain TCP.
func listen(tb testing.TB, config *tls.Config, serve func(*peer)) *server {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &server{listener: l}
	s.done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n := s.accepted.Add(1)
			if config != nil {
				conn = tls.Server(conn, config)
			}
			s.mu.Lock()
			s.conns = append(s.conns, conn)
			s.mu.Unlock()
			s.done.Go(func() {
				defer conn.Close()
				serve(&peer{conn, bufio.NewReader(conn), s, n})
			})
		}
	})
	tb.Cleanup(s.close)
	return s
}

func (s *server) close() {
	s.listener.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.done.Wait()
}

func (s *server) port() string {
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	return port
}

func (s *server) url() string { return "http://127.0.0.1:" + s.port() + "/hook" }

// seen returns the requests read so far.
func (s *server) seen() []*request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*request(nil), s.requests...)
}

// answering returns a peer function that answers every request on the
// connection with the given bytes.
func answering(answer string) func(*peer) {
	return func(p *peer) {
		for p.read() != nil {
			if p.write(answer) != nil {
				return
			}
		}
	}
}

// once is answering for one request; then the connection is closed.
func once(answer string) func(*peer) {
	return func(p *peer) {
		if p.read() != nil {
			p.write(answer)
		}
	}
}

const (
	ok200  = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	err500 = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
)

// impatient is a config under which a test of a silent peer ends soon.
var impatient = sender.Config{Timeout: 400 * time.Millisecond}

func newGuard(tb testing.TB, p guard.Policy) *guard.Guard {
	tb.Helper()
	g, err := guard.New(p)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// newSender returns a sender whose guard, unless the config has one, allows
// http and loopback.
func newSender(tb testing.TB, c sender.Config) *sender.Sender {
	tb.Helper()
	if c.Guard == nil {
		c.Guard = newGuard(tb, guard.Policy{Development: true})
	}
	s, err := sender.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

var testSecret = mustSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

func mustSecret(text string) signing.Secret {
	s, err := signing.Parse(text)
	if err != nil {
		panic(err)
	}
	return s
}

func newRequest(url string) sender.Request {
	return sender.Request{
		URL:       url,
		EventID:   "evt_2KWPBgLlAfxdpx2AI54pPJ85f4W",
		EventType: "invoice.paid",
		Attempt:   1,
		Body:      []byte(`{"type":"invoice.paid"}`),
		Secrets:   []signing.Secret{testSecret},
	}
}

func send(tb testing.TB, s *sender.Sender, r sender.Request) sender.Result {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.Send(ctx, r)
}

func want(tb testing.TB, r sender.Result, outcome sender.Outcome, status int) {
	tb.Helper()
	if r.Outcome != outcome || r.Status != status {
		tb.Errorf("got %s, status %d (%v), want %s, status %d", r.Outcome, r.Status, r.Err, outcome, status)
	}
}

// nowhere is a resolver that knows no name.
func nowhere(tb testing.TB) *net.Resolver { return dnstest.Start(tb).Resolver() }

// allocated returns how many bytes this process has allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func chunked(status string, chunks ...string) string {
	return "HTTP/1.1 " + status + "\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Join(chunks, "")
}
