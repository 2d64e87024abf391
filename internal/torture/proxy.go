package torture

import (
	"errors"
	"net"
	"sync"
	"time"
)

// proxy passes TCP connections on, to wherever target says when they are made.
type proxy struct {
	listener net.Listener
	target   func() string

	mu    sync.Mutex
	conns map[net.Conn]bool
	delay time.Duration
	// hole is not nil while everything is swallowed, and closed when that ends:
	// senders' kernels then send again what was not acknowledged, and it passes.
	hole chan struct{}
}

func newProxy(target func() string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, target: target, conns: map[net.Conn]bool{}}
	go p.accept()
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			go p.serve(conn)
		}
	}
}

func (p *proxy) serve(down net.Conn) {
	defer p.forget(down)
	p.remember(down)
	p.gate() // who connects into a hole hears nothing
	up, err := net.DialTimeout("tcp", p.target(), 5*time.Second)
	if err != nil {
		return
	}
	defer p.forget(up)
	p.remember(up)
	var both sync.WaitGroup
	both.Go(func() { p.pass(up, down) })
	both.Go(func() { p.pass(down, up) })
	both.Wait()
}

// pass copies in one direction, and ends both when it ends.
func (p *proxy) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.gate()
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// gate returns when something may pass.
func (p *proxy) gate() {
	for {
		p.mu.Lock()
		hole, delay := p.hole, p.delay
		p.mu.Unlock()
		if hole == nil {
			time.Sleep(delay)
			return
		}
		<-hole
	}
}

func (p *proxy) remember(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
}

func (p *proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close()
}

// cut ends every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// slow delays everything by d; 0 ends it.
func (p *proxy) slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// swallow lets nothing pass any more, as a network does that drops packets: nobody is
// told. What it returns ends it.
func (p *proxy) swallow() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hole := make(chan struct{})
	p.hole = hole
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hole = nil
		close(hole)
	}
}

func (p *proxy) close() {
	p.listener.Close()
	p.cut()
}
