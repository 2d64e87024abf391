package wake_test

import (
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/matryer/is"
)

// proxy stands between a Hub and the server.
type proxy struct {
	server string
	ln     net.Listener
	relay  func(client io.Writer, server io.Reader) // copies what the server says

	mu      sync.Mutex
	open    []net.Conn
	dropped map[net.Conn]bool // takes what comes and passes nothing on
}

// newProxy returns a proxy to the server of address, and the address that leads
// through it. A nil relay
// copies all.
func newProxy(t *testing.T, address *pgx.ConnConfig, relay func(client io.Writer, server io.Reader)) (*proxy, *pgx.ConnConfig) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	is.New(t).NoErr(err)
	if relay == nil {
		relay = func(client io.Writer, server io.Reader) { _, _ = io.Copy(client, server) }
	}
	server := net.JoinHostPort(address.Host, strconv.Itoa(int(address.Port)))
	p := &proxy{server: server, ln: ln, relay: relay, dropped: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		p.mu.Lock()
		for _, c := range p.open {
			c.Close()
		}
		p.mu.Unlock()
		running.Wait()
	})
	to := address.Copy()
	to.Host, to.Port = "127.0.0.1", uint16(ln.Addr().(*net.TCPAddr).Port)
	to.Fallbacks, to.TLSConfig = nil, nil
	return p, to
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.open = append(p.open, client, server)
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(silencer{p, client, server}, client)
		server.Close()
	})
	both.Go(func() {
		p.relay(silencer{p, server, client}, server)
		client.Close()
	})
	both.Wait()
}

// drop makes the connections that are open now pass nothing on, without
// closing them, as a firewall does that has forgotten them.
func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		p.dropped[c] = true
	}
}

type silencer struct {
	p        *proxy
	from, to net.Conn
}

func (s silencer) Write(b []byte) (int, error) {
	s.p.mu.Lock()
	dropped := s.p.dropped[s.from]
	s.p.mu.Unlock()
	if dropped {
		return len(b), nil
	}
	return s.to.Write(b)
}

// pooled relays as a pooler in transaction mode does: a process id of its own,
// and no notification between transactions.
func pooled(client io.Writer, server io.Reader) {
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(server, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		switch head[0] {
		case 'K': // BackendKeyData
			body[0] ^= 0x40
		case 'A': // NotificationResponse
			continue
		}
		if _, err := client.Write(append(head[:5:5], body...)); err != nil {
			return
		}
	}
}
