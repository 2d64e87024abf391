package guard_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"code.dny.dev/ssrf"
	"github.com/matryer/is"
	"go.uber.org/goleak"

	"github.com/postlane-go/postlane/delivery/guard"
	"github.com/postlane-go/postlane/internal/dnstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// ruleOf returns the rule that refused, "" for nil.
func ruleOf(tb testing.TB, err error) string {
	tb.Helper()
	if err == nil {
		return ""
	}
	var r *guard.Refusal
	if !errors.As(err, &r) {
		tb.Fatalf("got %T %v, want a *Refusal", err, err)
	}
	return r.Rule
}

// canary is a loopback listener that must stay silent.
func canary(tb testing.TB) (port string, connections *atomic.Int64) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	connections = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			c.Close()
		}
	}()
	tb.Cleanup(func() { l.Close(); <-done })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, connections
}

func TestBC35_AddressTable(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := mustGuard(t, guard.Policy{})
	port, connections := canary(t)
	dns := dnstest.Start(t)
	dialer := net.Dialer{Control: g.Control, Resolver: dns.Resolver(), Timeout: 5 * time.Second}
	for literal, rule := range map[string]string{
		"127.0.0.1":        guard.RuleLoopback,
		"127.9.9.9":        guard.RuleLoopback,
		"0.0.0.0":          guard.RuleUnspecified,
		"0.0.0.1":          guard.RuleUnspecified,
		"10.0.0.1":         guard.RulePrivate,
		"172.16.0.1":       guard.RulePrivate,
		"192.168.0.1":      guard.RulePrivate,
		"169.254.169.254":  guard.RuleMetadata,
		"169.254.1.1":      guard.RuleLinkLocal,
		"100.64.0.1":       guard.RuleShared,
		"100.100.100.200":  guard.RuleMetadata,
		"168.63.129.16":    guard.RuleMetadata,
		"192.0.0.1":        guard.RuleSpecial,
		"198.18.0.1":       guard.RuleBenchmarking,
		"224.0.0.1":        guard.RuleMulticast,
		"240.0.0.1":        guard.RuleReserved,
		"255.255.255.255":  guard.RuleReserved,
		"192.88.99.1":      guard.RuleSpecial,
		"::":               guard.RuleUnspecified,
		"::1":              guard.RuleLoopback,
		"::7f00:1":         guard.RuleEmbedded,
		"fc00::1":          guard.RulePrivate,
		"fd00::1":          guard.RulePrivate,
		"fd00:ec2::254":    guard.RuleMetadata,
		"fe80::1":          guard.RuleLinkLocal,
		"fec0::1":          guard.RuleSiteLocal,
		"ff02::1":          guard.RuleMulticast,
		"::ffff:127.0.0.1": guard.RuleLoopback,
		"::ffff:7f00:1":    guard.RuleLoopback,
		"64:ff9b::7f00:1":  guard.RuleNAT64,
		"64:ff9b:1::1":     guard.RuleNAT64,
		"2002:7f00:1::":    guard.RuleEmbedded,
		"2001::1":          guard.RuleEmbedded,
		"4000::1":          guard.RuleSpecial, // not global unicast
	} {
		is.Equal(ruleOf(t, g.CheckAddr(addr(literal))), rule) // as an address

		// As a literal in a URL.
		_, err := g.CheckURL("https://" + bracket(literal) + ":" + port + "/")
		is.True(errors.Is(err, guard.ErrRefused))

		// As a literal that is dialled, and as what a name resolves to.
		_, err = dialer.DialContext(context.Background(), "tcp", net.JoinHostPort(literal, port))
		is.True(errors.Is(err, guard.ErrRefused))
		dns.Set("target.test", dnstest.Addrs(literal))
		_, err = dialer.DialContext(context.Background(), "tcp", "target.test:"+port)
		is.True(err != nil)
	}
	for _, public := range []string{"8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"} {
		is.NoErr(g.CheckAddr(addr(public)))
	}
	is.Equal(connections.Load(), int64(0))
}

func bracket(literal string) string {
	if strings.Contains(literal, ":") {
		return "[" + literal + "]"
	}
	return literal
}

// TestEveryRegisteredPrefixIsRefused walks the edges of all that the
// registries list: naming a rule must never open a hole beside it.
func TestEveryRegisteredPrefixIsRefused(t *testing.T) {
	t.Parallel()
	g := mustGuard(t, guard.Policy{})
	for _, p := range slices.Concat(ssrf.IPv4DeniedPrefixes, ssrf.IPv6DeniedPrefixes) {
		for _, a := range []netip.Addr{p.Masked().Addr(), last(p)} {
			if ruleOf(t, g.CheckAddr(a)) == "" {
				t.Errorf("%s of %s is let through", a, p)
			}
		}
	}
}

func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func TestBC36_RebindingNeverReachesTheCanary(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := mustGuard(t, guard.Policy{})
	port, connections := canary(t)
	dns := dnstest.Start(t)
	// The "public" answer is one that a recorder refuses before it connects:
	// no test sends a packet out.
	dns.Set("flip.test", dnstest.Addrs("93.184.215.14"), dnstest.Addrs("127.0.0.1"))
	dns.Set("flop.test", dnstest.Addrs("127.0.0.1"), dnstest.Addrs("93.184.215.14"))
	dns.Set("both.test", dnstest.Addrs("93.184.215.14", "127.0.0.1", "::1"))
	dns.Set("inner.test", dnstest.Addrs("127.0.0.1", "::1", "0.0.0.0"))
	for _, name := range []string{"flip.test", "flop.test", "both.test", "inner.test"} {
		_, err := g.CheckURL("https://" + name + ":" + port + "/hook")
		is.NoErr(err) // nothing to find fault with at registration
		for range 10 {
			rec := &recorder{guard: g}
			dialer := net.Dialer{Control: rec.control, Resolver: dns.Resolver(), Timeout: 5 * time.Second, FallbackDelay: time.Millisecond}
			_, err := dialer.DialContext(context.Background(), "tcp", name+":"+port)
			is.True(err != nil)
			for _, a := range rec.permitted {
				is.Equal(a, addr("93.184.215.14"))
			}
		}
	}
	is.Equal(connections.Load(), int64(0))

	// The canary hears: without the guard the same dial connects.
	open := net.Dialer{Resolver: dns.Resolver(), Timeout: 5 * time.Second}
	c, err := open.DialContext(context.Background(), "tcp", "inner.test:"+port)
	is.NoErr(err)
	c.Close()
}

func TestControlRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := mustGuard(t, guard.Policy{Development: true})
	for _, c := range []struct{ network, address, rule string }{
		{"tcp4", "127.0.0.1:8080", ""},
		{"tcp6", "[::1]:8080", ""},
		{"tcp", "127.0.0.1:8080", guard.RuleNetwork}, // the dialer always says which
		{"udp4", "127.0.0.1:8080", guard.RuleNetwork},
		{"unix", "/var/run/docker.sock", guard.RuleNetwork},
		{"", "", guard.RuleNetwork},
		{"tcp4", ":443", guard.RuleAddress},
		{"tcp4", "127.0.0.1", guard.RuleAddress},
		{"tcp4", "localhost:443", guard.RuleAddress},
		{"tcp6", "[::1%lo]:443", guard.RuleZone},
		{"tcp6", "[fe80::1%eth0]:443", guard.RuleZone},
		{"tcp4", "127.0.0.1:0", guard.RulePort},
		{"tcp4", "127.0.0.1:25", guard.RulePort},
	} {
		is.Equal(ruleOf(t, g.Control(c.network, c.address, syscall.RawConn(nil))), c.rule)
	}
	is.Equal(ruleOf(t, g.CheckAddr(netip.Addr{})), guard.RuleAddress)
}

func TestDenyBeatsAllowBeatsDefault(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := mustGuard(t, guard.Policy{
		Allow: []netip.Prefix{prefix("10.1.0.0/16"), prefix("fd00:1::/32"), prefix("169.254.169.254/32")},
		Deny:  []netip.Prefix{prefix("10.1.2.0/24"), prefix("8.8.8.0/24"), prefix("2606:4700::/32")},
	})
	for literal, rule := range map[string]string{
		"10.1.1.1":        "",
		"::ffff:10.1.1.1": "",
		"10.1.2.1":        guard.RuleDenied,
		"10.2.0.1":        guard.RulePrivate,
		"fd00:1::5":       "",
		"fd00:2::5":       guard.RulePrivate,
		"169.254.169.254": "", // an operator's word is an operator's word
		"8.8.8.8":         guard.RuleDenied,
		"::ffff:8.8.8.8":  guard.RuleDenied,
		"8.8.4.4":         "",
		"2606:4700::1":    guard.RuleDenied,
	} {
		is.Equal(ruleOf(t, g.CheckAddr(addr(literal))), rule) // literal
	}
	// Allow opens addresses, not schemes or names.
	_, err := g.CheckURL("http://10.1.1.1/")
	is.Equal(ruleOf(t, err), guard.RuleScheme)
	_, err = g.CheckURL("https://10.1.1.1/")
	is.NoErr(err)
}

func TestDevelopmentOpensNoMoreThanItSays(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := mustGuard(t, guard.Policy{Development: true})
	is.True(g.Development())
	for literal, rule := range map[string]string{
		"127.0.0.1":       "",
		"::1":             "",
		"10.0.0.5":        "",
		"172.18.0.4":      "",
		"192.168.65.254":  "",
		"fd00::5":         "",
		"8.8.8.8":         "",
		"0.0.0.0":         guard.RuleUnspecified,
		"::":              guard.RuleUnspecified,
		"169.254.169.254": guard.RuleMetadata,
		"fd00:ec2::254":   guard.RuleMetadata,
		"fd20:ce::254":    guard.RuleMetadata,
		"100.100.100.200": guard.RuleMetadata,
		"168.63.129.16":   guard.RuleMetadata,
		"100.64.0.1":      guard.RuleShared,
		"fe80::1":         guard.RuleLinkLocal,
		"fec0::1":         guard.RuleSiteLocal,
		"64:ff9b::7f00:1": guard.RuleNAT64,
		"::7f00:1":        guard.RuleEmbedded,
		"224.0.0.1":       guard.RuleMulticast,
	} {
		is.Equal(ruleOf(t, g.CheckAddr(addr(literal))), rule) // literal
	}
}

func TestNewRefusesPrefixesThatNeverMatch(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	mapped := netip.PrefixFrom(addr("::ffff:10.0.0.0"), 104)
	for _, p := range []guard.Policy{
		{Allow: []netip.Prefix{{}}},
		{Deny: []netip.Prefix{{}}},
		{Allow: []netip.Prefix{mapped}},
		{Deny: []netip.Prefix{prefix("10.0.0.0/8"), mapped}},
	} {
		_, err := guard.New(p)
		is.True(err != nil)
	}
	// All that is wrong is said at once.
	_, err := guard.New(guard.Policy{Allow: []netip.Prefix{{}}, Deny: []netip.Prefix{mapped}})
	is.True(strings.Contains(err.Error(), "Allow[0]") && strings.Contains(err.Error(), "Deny[0]"))
}

func TestPolicyIsCopied(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	deny := []netip.Prefix{prefix("8.8.8.0/24")}
	g := mustGuard(t, guard.Policy{Deny: deny})
	deny[0] = prefix("9.9.9.0/24")
	is.Equal(ruleOf(t, g.CheckAddr(addr("8.8.8.8"))), guard.RuleDenied)
}

func TestRefusalTextNeverHoldsTheAddress(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := mustGuard(t, guard.Policy{})
	for _, a := range []string{"10.1.2.3", "127.0.0.1", "fd00::5", "169.254.169.254"} {
		err := g.Control("tcp4", net.JoinHostPort(a, "443"), nil)
		is.True(errors.Is(err, guard.ErrRefused))
		is.True(!strings.Contains(err.Error(), a))
		var r *guard.Refusal
		is.True(errors.As(err, &r))
		is.Equal(r.Addr, addr(a))                       // the operator's
		is.True(!strings.Contains(err.Error(), r.Rule)) // which range it is in is the network's business
	}
}

func BenchmarkCheckURL(b *testing.B) {
	g := mustGuard(b, guard.Policy{})
	for name, url := range map[string]string{
		"name": "https://hooks.example.com/v1/receive?token=abc",
		"ip":   "https://8.8.8.8/hook",
		"idn":  "https://bücher.example.com/hook",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.CheckURL(url); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkControl(b *testing.B) {
	g := mustGuard(b, guard.Policy{})
	b.ReportAllocs()
	for b.Loop() {
		if err := g.Control("tcp4", "93.184.215.14:443", nil); err != nil {
			b.Fatal(err)
		}
	}
}
