package guard_test

import (
	"net/netip"
	"testing"

	"github.com/postlane-go/postlane/delivery/guard"
)

// FuzzControl holds, for whatever a dialer could hand over: no panic; what is let
// through is TCP, to an address that Go's own words for what is not public do not fit,
// and that is judged in the same way in its other spellings.
func FuzzControl(f *testing.F) {
	for _, address := range []string{
		"93.184.216.34:443", "127.0.0.1:443", "[::1]:443", "[::ffff:10.0.0.1]:443", "[64:ff9b::a00:1]:443", "[fe80::1%eth0]:443",
		"[2606:4700::1111]:443", "[2002:7f00:1::]:443", "169.254.169.254:80", ":443", "1.1.1.1:0", "1.1.1.1:25", "0x7f.1:443",
	} {
		f.Add("tcp4", address)
		f.Add("tcp6", address)
	}
	f.Add("udp", "1.1.1.1:443")
	g := mustGuard(f, guard.Policy{})
	f.Fuzz(func(t *testing.T, network, address string) {
		if err := g.Control(network, address, nil); err != nil {
			ruleOf(t, err)
			return
		}
		to, err := netip.ParseAddrPort(address)
		if err != nil || to.Port() == 0 || network != "tcp4" && network != "tcp6" {
			t.Fatalf("%s to %q is let through", network, address)
		}
		addr := to.Addr()
		for _, a := range []netip.Addr{addr, addr.Unmap()} {
			if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.Zone() != "" {
				t.Fatalf("%q is let through", address)
			}
			if err := g.CheckAddr(a); err != nil {
				t.Fatalf("%q is let through, and %s is not: %v", address, a, err)
			}
		}
		if plain := addr.Unmap(); plain.Is4() {
			if err := g.CheckAddr(netip.AddrFrom16(plain.As16())); err != nil {
				t.Fatalf("%q is let through, and not as IPv6: %v", address, err)
			}
		}
	})
}
