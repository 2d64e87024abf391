package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"code.dny.dev/ssrf"
)

// Policy configures a Guard. The zero value is the production policy.
type Policy struct {
	// Development also allows http, single-label and local names, loopback,
	// RFC 1918 and unique local addresses (RFC 4193), for receivers on the
	// developer's machine or its compose network. Everything else is refused
	// as in production: cloud metadata and link-local addresses above all.
	// Default: false.
	Development bool

	// Allow lists prefixes that are allowed although the default rules refuse
	// them, such as the subnet of a receiver of one's own. It opens addresses,
	// not schemes or names: production still takes https only.
	// Default: none.
	Allow []netip.Prefix

	// Deny lists prefixes that are refused whatever else allows them: one's
	// own public ranges, for instance. Deny beats Allow, Allow beats the
	// default rules.
	// Default: none.
	Deny []netip.Prefix
}

// Guard judges endpoint URLs and addresses. It is immutable and safe for
// concurrent use.
type Guard struct {
	development bool
	allow, deny []netip.Prefix
	registry    *ssrf.Guardian
}

// New returns a Guard for the policy. It fails if a prefix of Allow or Deny
// could never match: an invalid one, or an IPv4 range written as IPv4-mapped
// IPv6, since addresses are unmapped before they are judged.
func New(p Policy) (*Guard, error) {
	var errs []error
	for _, list := range []struct {
		name     string
		prefixes []netip.Prefix
	}{{"Allow", p.Allow}, {"Deny", p.Deny}} {
		for i, prefix := range list.prefixes {
			switch {
			case !prefix.IsValid():
				errs = append(errs, fmt.Errorf("guard: %s[%d] is not a valid prefix", list.name, i))
			case prefix.Addr().Is4In6():
				errs = append(errs, fmt.Errorf("guard: %s[%d] %s is IPv4-mapped and would never match; write it as an IPv4 prefix", list.name, i, prefix))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Guard{
		development: p.Development,
		allow:       slices.Clone(p.Allow),
		deny:        slices.Clone(p.Deny),
		registry:    ssrf.New(ssrf.WithAnyPort()),
	}, nil
}

// Development reports whether the guard allows what Policy.Development allows.
func (g *Guard) Development() bool { return g.development }

// CheckAddr reports whether addr may be connected to. IPv4-mapped IPv6 is
// judged as the IPv4 address that the kernel would connect to. The error is a
// *Refusal.
func (g *Guard) CheckAddr(addr netip.Addr) error {
	// A *Refusal must not reach the caller as a non-nil error holding nil.
	if r := g.judge(addr); r != nil {
		return r
	}
	return nil
}

// Control is for net.Dialer.Control (it has that signature): it refuses every
// network but TCP, addresses that CheckAddr refuses, and ports of other
// protocols. What it cannot parse it refuses. The error is a *Refusal.
func (g *Guard) Control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return refuse(RuleNetwork, "only TCP connections are made to endpoints")
	}
	// The dialer hands over ":443" for an empty host, meaning this machine.
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return refuse(RuleAddress, "it does not lead to an IP address and a port")
	}
	if err := g.CheckAddr(ap.Addr()); err != nil {
		return err
	}
	if ap.Port() == 0 || badPort(ap.Port()) {
		return refuse(RulePort, textPort)
	}
	return nil
}

func (g *Guard) judge(addr netip.Addr) *Refusal {
	if !addr.IsValid() {
		return refuseAddr(RuleAddress, addr)
	}
	// A zone names an interface of this machine, and netip.Prefix.Contains is
	// false for every address that has one: unread it would slip past all lists.
	if addr.Zone() != "" {
		return refuseAddr(RuleZone, addr)
	}
	addr = addr.Unmap()
	if containsAddr(g.deny, addr) {
		return refuseAddr(RuleDenied, addr)
	}
	if containsAddr(g.allow, addr) {
		return nil
	}
	rule := ruleOf(addr)
	if rule == "" {
		// The list above exists to name the rule; the registry decides what
		// it does not name.
		if g.registry.SafeAddr(addr) != nil {
			return refuseAddr(RuleSpecial, addr)
		}
		return nil
	}
	if g.development && (rule == RuleLoopback || rule == RulePrivate) {
		return nil
	}
	return refuseAddr(rule, addr)
}

func containsAddr(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
