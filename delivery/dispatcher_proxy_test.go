package delivery_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery"
	"github.com/postlane-go/postlane/delivery/guard"
)

// proxy stands between a pool and the server, and can make the server go away.
type proxy struct {
	network, address string
	ln               net.Listener

	mu   sync.Mutex
	down bool
	open map[net.Conn]bool
}

// throughProxy returns a store that reaches the test's database through a proxy.
func (s *site) throughProxy(change ...func(*pgxpool.Config)) (*delivery.Store, *proxy) {
	s.t.Helper()
	config := s.pool.Config()
	to := config.ConnConfig
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	s.is.NoErr(err)
	p := &proxy{ln: ln, open: map[net.Conn]bool{}}
	p.network, p.address = pgconn.NetworkAddress(to.Host, to.Port)
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
	to.Host, to.Port, to.Fallbacks = "127.0.0.1", uint16(ln.Addr().(*net.TCPAddr).Port), nil
	for _, f := range change {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	s.is.NoErr(err)
	s.t.Cleanup(func() {
		pool.Close()
		_ = ln.Close()
		p.set(true)
		running.Wait()
	})
	return storeOn(s.t, pool), p
}

func storeOn(t *testing.T, pool *pgxpool.Pool) *delivery.Store {
	t.Helper()
	is := is.New(t)
	g, err := guard.New(guard.Policy{Development: true})
	is.NoErr(err)
	store, err := delivery.NewStore(pool, delivery.StoreConfig{Guard: g})
	is.NoErr(err)
	return store
}

// set makes the server unreachable, open connections included, or reachable again.
func (p *proxy) set(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	if down {
		for c := range p.open {
			_ = c.Close()
		}
	}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	if !p.add(client) {
		return
	}
	defer p.remove(client)
	server, err := net.Dial(p.network, p.address)
	if err != nil || !p.add(server) {
		return
	}
	defer p.remove(server)
	defer server.Close()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
	both.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
	both.Wait()
}

func (p *proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		_ = c.Close()
		return false
	}
	p.open[c] = true
	return true
}

func (p *proxy) remove(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}
