package guard

import (
	"errors"
	"net/netip"
)

// ErrRefused is what every refusal of this package matches with errors.Is.
var ErrRefused = errors.New("guard: endpoint refused")

// Rule names say which rule refused. They are stable: metrics, tests and API
// errors may rely on them.
const (
	RuleLength      = "length"       // URL empty or longer than MaxURLLength
	RuleCharacters  = "characters"   // control, space, backslash, bidi control, or not UTF-8
	RuleSyntax      = "syntax"       // not an absolute URL with an authority
	RuleScheme      = "scheme"       // not https (or http in development)
	RuleCredentials = "credentials"  // user:password@ in the URL
	RuleHost        = "host"         // empty or malformed host name
	RuleSpelling    = "spelling"     // an address or name in a spelling that parsers read differently
	RuleSpecialName = "special-name" // localhost, .internal and other names of private networks
	RulePort        = "port"         // malformed, 0, above 65535, or another protocol's port
	RuleNetwork     = "network"      // not TCP
	RuleAddress     = "address"      // what was about to be dialled is not an IP address and port
	RuleZone        = "zone"         // IPv6 address with a zone
	RuleDenied      = "denied"       // Policy.Deny

	RuleUnspecified   = "unspecified"
	RuleLoopback      = "loopback"
	RulePrivate       = "private"
	RuleSiteLocal     = "site-local" // apart from private: development has no use for it
	RuleShared        = "shared"     // carrier-grade NAT, RFC 6598
	RuleLinkLocal     = "link-local"
	RuleMetadata      = "metadata" // cloud platform services
	RuleMulticast     = "multicast"
	RuleReserved      = "reserved"
	RuleDocumentation = "documentation"
	RuleBenchmarking  = "benchmarking"
	RuleNAT64         = "nat64"
	RuleEmbedded      = "embedded" // an IPv4 address inside IPv6: 6to4, Teredo, IPv4-compatible, ...
	RuleSpecial       = "special-purpose"
)

// Refusal says which rule refused an endpoint. Match it with errors.As, or
// ErrRefused with errors.Is.
type Refusal struct {
	// Rule is one of the Rule constants.
	Rule string
	// Addr is the address that was refused, where there was one. It is for the
	// operator's eyes: when it comes from name resolution it tells a tenant
	// how names resolve inside this network. Error never prints it.
	Addr netip.Addr

	text string
}

// Error says what is wrong and what to do, in words that a tenant may see: it
// holds neither an address nor, for a connection that was refused, the rule.
func (r *Refusal) Error() string { return r.text }

// Is reports whether target is ErrRefused.
func (r *Refusal) Is(target error) bool { return target == ErrRefused }

func refuse(rule, text string) *Refusal {
	return &Refusal{Rule: rule, text: "endpoint refused (" + rule + "): " + text}
}

// textNotPublic is all that a tenant learns about a refused address: which
// rule it met would answer questions about this network.
const textNotPublic = "endpoint refused: its address is not allowed; use an endpoint with a public internet address"

func refuseAddr(rule string, addr netip.Addr) *Refusal {
	return &Refusal{Rule: rule, Addr: addr, text: textNotPublic}
}
