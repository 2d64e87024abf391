package cli_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postlane-go/postlane/internal/dnstest"
)

// resolver is asked in place of the machine's, once a test has set it.
var resolver atomic.Pointer[net.Resolver]

func TestMain(m *testing.M) {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if r := resolver.Load(); r != nil {
			return r.Dial(ctx, network, address)
		}
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}}
	os.Exit(m.Run())
}

// A test request from the command line reaches nothing that the guard refuses, whatever the
// endpoint's name resolves to by then.
func TestAHostileResolverLeadsNowhere(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	dns := dnstest.Start(t)
	resolver.Store(dns.Resolver())
	canary, err := net.Listen("tcp", "127.0.0.1:0")
	s.is.NoErr(err)
	var reached atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := canary.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			conn.Close()
		}
	}()
	_, port, err := net.SplitHostPort(canary.Addr().String())
	s.is.NoErr(err)
	inner := dnstest.Addrs("127.0.0.1")
	for host, answers := range map[string][]dnstest.Answer{
		"inner.hostile.test":   {inner},
		"mixed.hostile.test":   {dnstest.Addrs("10.0.0.1", "127.0.0.1", "::1", "169.254.169.254", "::ffff:127.0.0.1")},
		"aliases.hostile.test": {{Aliases: []string{"a.hostile.test", "localhost"}, Addrs: inner.Addrs}},
		"changes.hostile.test": {dnstest.Addrs("10.0.0.1"), inner, dnstest.Addrs("::1"), inner},
	} {
		dns.Set(host, answers...)
		made := s.ok("subscriptions", "create", "-tenant", "acme", "-url", "https://"+host+":"+port+"/", "-secret-key", s.secret)
		for range 4 {
			code, out, errOut := s.run("", "subscriptions", "test", made["id"].(string), "-json", "-database-url", s.database, "-secret-key", s.secret)
			var test map[string]any
			s.is.NoErr(json.Unmarshal([]byte(out), &test))
			s.is.Equal(code, 1)
			s.is.Equal(test["outcome"], "blocked")
			s.is.True(strings.Contains(errOut, "URL or address is not allowed"))
		}
		s.is.Equal(dns.Lookups(host), 4)
	}
	canary.Close()
	<-done
	s.is.Equal(reached.Load(), int64(0))
}
